"""The flow `pretrain`: raw files to checkpoints in seven stages, each a cached task that passes its manifest on."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from pydantic import Field

from configs.errors import PipelineError
from configs.load import load_config
from configs.schema import STAGES, ArtifactName, RunConfig, StageName
from tasks import chunk, dedup, filter, normalize, pack, smoke
from tasks import pretrain as long_training
from tasks.artifact import Manifest, Workspace
from tasks.cached_task import StageTask, cached_task, run_cached
from tasks.pack.report import PAGE, sample_texts
from tasks.raw import RawCorpus, list_raw_files
from tasks.stage import Stage, StageInput
from tasks.summary import headline, removal_table

logger = logging.getLogger("mindpretrain")


@dataclass(frozen=True)
class Link:
    """A stage of the chain, its task, and the stage whose artifact it takes (None: the raw files)."""

    stage: Stage
    task: StageTask
    takes: StageName | None


DATA, TRAINING = {"data"}, {"training"}
CHAIN = (
    Link(normalize.STAGE, cached_task(normalize.STAGE, "Raw files to clean documents in one script", DATA), None),
    Link(dedup.STAGE, cached_task(dedup.STAGE, "Documents that repeat no earlier one", DATA), "normalize"),
    Link(filter.STAGE, cached_task(filter.STAGE, "Documents without noise", DATA), "dedup"),
    Link(chunk.STAGE, cached_task(chunk.STAGE, "Documents cut at their headings", DATA), "filter"),
    Link(pack.STAGE, cached_task(pack.STAGE, "Token dataset of equal sequences", DATA), "chunk"),
    Link(smoke.STAGE, cached_task(smoke.STAGE, "Short training that has to succeed", TRAINING), "pack"),
    Link(long_training.STAGE, cached_task(long_training.STAGE, "Trained checkpoints", TRAINING), "pack"),
)


@flow(name="pretrain", flow_run_name="{config}", retries=0, validate_parameters=True)
def pretrain(
    config: Annotated[str, Field(description="YAML file, relative to the project's folder")] = "configs/demo.yaml",
    overrides: Annotated[tuple[str, ...], Field(description="Changes to it, such as pack.seq_length=256")] = (),
    until: Annotated[StageName, Field(description="The last stage to run")] = "pretrain",
    only: Annotated[StageName | None, Field(description="Run this stage alone, on artifacts that are there")] = None,
) -> dict[ArtifactName, Manifest]:
    """Make every stage's artifact, or take the one that is there; return their manifests.

    Raises:
        PipelineError: a bad configuration or input, or a stage that failed. What was finished is kept.
    """
    return dict(make_artifacts(load_config(config, overrides), until, only))


def make_artifacts(
    config: RunConfig, until: StageName, only: StageName | None
) -> Iterator[tuple[ArtifactName, Manifest]]:
    """Go through the chain. With `only`, the stages before it must have their artifacts already."""
    raw = list_raw_files(config)
    logger.info("raw files: %d, %.1f MB", len(raw.files), sum(file.bytes for file in raw.files) / 1e6)
    manifests: dict[ArtifactName, Manifest] = {}
    for link in CHAIN[: STAGES.index(only or until) + 1]:
        name = link.stage.name
        if only is None or name == only:
            manifests[name] = _make(link, config, _inputs(link, raw, manifests))
        elif link.stage.name != "smoke":
            manifests[name] = _existing(link, config, _inputs(link, raw, manifests))
        else:
            continue
        yield name, manifests[name]


def _inputs(link: Link, raw: RawCorpus, manifests: dict[ArtifactName, Manifest]) -> tuple[StageInput, ...]:
    return (manifests[link.takes],) if link.takes else (raw,)


def _make(link: Link, config: RunConfig, inputs: tuple[StageInput, ...]) -> Manifest:
    state = run_cached(link.stage, link.task, config, inputs)
    manifest = state.result()
    logger.info("%s: %s: %s", link.stage.name, state.name, headline(manifest))
    if rows := removal_table(manifest.stats):
        create_table_artifact(
            rows, key=f"{manifest.stage}-removed", description=f"What {manifest.stage} took out, by rule"
        )
    if manifest.stage == "pack":
        create_markdown_artifact(_samples(config, manifest), key="pack-samples", description="Packed sequences as text")
    return manifest


def _samples(config: RunConfig, manifest: Manifest) -> str:
    """Return sequences as Markdown, document ends marked; the whole report is a page in the artifact."""
    folder = Workspace(Path(config.workspace)).folder(manifest.stage, manifest.key)
    texts = "\n\n".join(f"~~~~~~~~text\n{text}\n~~~~~~~~" for text in sample_texts(folder))
    alarms = "".join(f"**{alarm}**\n\n" for alarm in manifest.stats["alarms"])
    return f"{alarms}Figures, lengths and coloured tokens: `{folder / PAGE}`\n\n{texts}"


def _existing(link: Link, config: RunConfig, inputs: tuple[StageInput, ...]) -> Manifest:
    manifest = Workspace(Path(config.workspace)).find(link.stage.name, link.stage.key(config, inputs))
    if manifest is None:
        raise PipelineError(
            f"{link.stage.name}: there is no artifact of it for this configuration, which the stage that was asked for "
            f"needs; run `mindpretrain run CONFIG --until {link.stage.name}` first"
        )
    return manifest
