"""The report of a run: one HTML page that opens without a network, in English and Chinese, made from the run's record and
the artifacts that it names.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from configs.schema import ArtifactName
from tasks.artifact import Artifact, Workspace
from tasks.charts import bar_chart, training_charts
from tasks.dedup.report import REPORT as DEDUP_REPORT
from tasks.evaluate import losses_of
from tasks.files import atomic_path
from tasks.masking import mask
from tasks.pack.report import DOCUMENT_END
from tasks.pack.report import REPORT as PACK_REPORT
from tasks.record import RunRecord
from tasks.smoke import REPORT as SMOKE_REPORT
from tasks.summary import headline, removal_table
from tasks.train.job import METRICS, SAMPLE
from tasks.train.metrics import read_evaluations, read_metrics

CLUSTERS, SAMPLES, EXCERPT = 10, 5, 160
DOCUMENT_STAGES: tuple[ArtifactName, ...] = ("normalize", "dedup", "filter")
TRAININGS: tuple[ArtifactName, ...] = ("smoke", "pretrain")


@dataclass(frozen=True)
class Training:
    """A training's curves, and what it came to."""

    stage: ArtifactName
    stats: dict[str, Any]
    charts: dict[str, Markup]
    gates: list[dict[str, Any]]
    evaluations: list[Any]
    sample: str


def write_report(record: RunRecord, workspace: Workspace, target: Path) -> None:
    """Write the report of a run. Artifacts that are gone are left out, and named."""
    with atomic_path(target) as temporary:
        temporary.write_text(render(record, workspace), encoding="utf-8")


def render(record: RunRecord, workspace: Workspace) -> str:
    """Return the page's HTML."""
    found = {entry.stage: artifact for entry in record.stages if (artifact := _open(workspace, entry.stage, entry.key))}
    environment = Environment(loader=PackageLoader("tasks.report", "."), autoescape=True, trim_blocks=True)
    text = environment.get_template("page.html.j2").render(
        record=record,
        seconds=(record.ended - record.started).total_seconds() if record.ended else None,
        stages=[(entry, headline(found[entry.stage].manifest) if entry.stage in found else None) for entry in record.stages],
        funnel=list(_funnel(found)),
        removed=[(stage, removal_table(found[stage].manifest.stats)) for stage in DOCUMENT_STAGES if stage in found],
        removed_by_source=_removed_by_source(found),
        clusters=_clusters(found),
        sources=_sources(found),
        lengths=_lengths(found),
        samples=list(_samples(found)),
        alarms=found["pack"].manifest.stats["alarms"] if "pack" in found else [],
        trainings=[_training(found[stage]) for stage in TRAININGS if stage in found],
        held_out=_held_out(found),
        config=mask(yaml.safe_dump(record.config, sort_keys=False, allow_unicode=True)),
        libraries=sorted({entry for artifact in found.values() for entry in artifact.manifest.libraries.items()}),
        document_end=DOCUMENT_END,
    )  # fmt: skip
    return str(text)


def _open(workspace: Workspace, stage: ArtifactName, key: str) -> Artifact | None:
    manifest = workspace.find(stage, key)
    return workspace.open(manifest) if manifest else None


def _funnel(found: Mapping[ArtifactName, Artifact]) -> Iterator[dict[str, Any]]:
    """Yield what each stage left of documents, characters and tokens."""
    for place, stage in enumerate(DOCUMENT_STAGES):
        if stage not in found:
            continue
        stats = found[stage].manifest.stats
        if place == 0:
            yield {"stage": "raw", "documents": stats["documents_in"]}
        yield {"stage": stage, "documents": stats["documents_kept"], "characters": stats["characters"]}
    if "chunk" in found:
        yield {"stage": "chunk", "documents": found["chunk"].manifest.stats["documents_in"]}
    if "pack" in found:
        stats = found["pack"].manifest.stats
        held_out = stats["documents_held_out"]
        yield {"stage": "pack", "documents": stats["documents"] + held_out, "tokens": stats["tokens"]}


def _removed_by_source(found: Mapping[ArtifactName, Artifact]) -> list[dict[str, Any]]:
    """Return how many documents each stage took out of each source."""
    counts: Counter[tuple[str, ArtifactName]] = Counter()
    for stage in DOCUMENT_STAGES:
        if stage in found:
            artifact = found[stage]
            for path in artifact.paths(artifact.manifest.removed):
                table = pq.read_table(path, columns=["source"], filters=[("scope", "=", "document")])
                counts.update((source, stage) for source in table["source"].to_pylist())
    sources = sorted({source for source, _ in counts})
    return [{"source": source} | {stage: counts[source, stage] for stage in DOCUMENT_STAGES} for source in sources]


def _clusters(found: Mapping[ArtifactName, Artifact]) -> list[dict[str, Any]]:
    if "dedup" not in found:
        return []
    report = json.loads((found["dedup"].folder / DEDUP_REPORT).read_text(encoding="utf-8"))
    return list(report["clusters"][:CLUSTERS])


def _sources(found: Mapping[ArtifactName, Artifact]) -> list[dict[str, Any]]:
    if "pack" not in found:
        return []
    stats = found["pack"].manifest.stats
    tokens = {name.removeprefix("tokens:"): count for name, count in stats.items() if name.startswith("tokens:")}
    total = max(1, sum(tokens.values()))
    return [
        {"source": name, "documents": stats[f"documents:{name}"], "tokens": count, "share": count / total}
        for name, count in tokens.items()
    ]


def _lengths(found: Mapping[ArtifactName, Artifact]) -> Markup | None:
    """Return a histogram of the tokens of documents."""
    if "pack" not in found:
        return None
    rows = _pack_report(found["pack"])["document_tokens"]
    labels = [f"{row['from']:,} to {row['to'] - 1:,}" for row in rows]
    return Markup(bar_chart(labels, [row["documents"] for row in rows], "documents"))  # noqa: S704 - our own SVG


def _samples(found: Mapping[ArtifactName, Artifact]) -> Iterator[dict[str, Any]]:
    if "pack" in found:
        yield from _pack_report(found["pack"])["samples"][:SAMPLES]


def _pack_report(artifact: Artifact) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((artifact.folder / PACK_REPORT).read_text(encoding="utf-8"))
    return report


def _training(artifact: Artifact) -> Training:
    folder, sample, gates = artifact.folder, artifact.folder / SAMPLE, artifact.folder / SMOKE_REPORT
    return Training(
        stage=artifact.manifest.stage,
        stats=artifact.manifest.stats,
        charts={title: Markup(svg) for title, svg in training_charts(read_metrics(folder / METRICS)).items()},  # noqa: S704
        gates=json.loads(gates.read_text(encoding="utf-8")) if gates.is_file() else [],
        evaluations=list(read_evaluations(folder)),
        sample=sample.read_text(encoding="utf-8") if sample.is_file() else "",
    )


def _held_out(found: Mapping[ArtifactName, Artifact]) -> list[dict[str, Any]]:
    """Return the losses of the last evaluation, a row a token dataset."""
    if "evaluate" not in found:
        return []
    losses = losses_of(found["evaluate"].manifest.stats["losses"])
    return [
        {"dataset": key, "tokens": loss.tokens, "loss": loss.loss, "perplexity": loss.perplexity}
        for key, loss in losses.items()
    ]
