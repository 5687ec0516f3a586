"""Shows what an artifact is: its figures and some of its content, readable, evenly taken from the whole."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from configs.errors import PipelineError
from tasks.artifact import Artifact, ArtifactFile, read_manifest
from tasks.dedup.report import REPORT, excerpt
from tasks.evaluate import losses_of
from tasks.pack.dataset import Dataset
from tasks.pack.report import DOCUMENT_END, evenly
from tasks.train.job import METRICS
from tasks.train.metrics import read_metrics
from tasks.train.stages import norm_or_overflow

EXCERPT_CHARACTERS, SHORT_EXCERPT = 300, 60
DOCUMENT_STAGES = ("normalize", "dedup", "filter")
SEQUENCE_STAGES = ("pack", "mix")
SHOWN_BELOW = ("samples", "losses")


def inspect_artifact(folder: Path, samples: int) -> Iterator[str]:
    """Yield the lines that show an artifact.

    Raises:
        PipelineError: the folder is no artifact, or a file of it is missing.
    """
    artifact = Artifact(folder, read_manifest(folder))
    try:
        yield from _describe(artifact)
        match artifact.manifest.stage:
            case "normalize" | "filter":
                yield from _show_documents(artifact, samples)
            case "dedup":
                yield from _show_documents(artifact, samples)
                yield from _show_report(artifact, samples)
            case "chunk":
                yield from _show_chunks(artifact, samples)
            case "tokens":
                yield from _show_tokens(artifact, samples)
            case "pack" | "mix":
                yield from _show_sequences(artifact, samples)
            case "smoke" | "pretrain":
                yield from _show_steps(artifact, samples)
            case "evaluate":
                yield from _show_losses(artifact)
    except FileNotFoundError as error:
        raise PipelineError(f"{error.filename}: missing from the artifact; run its stage again") from None


def explain_document(folder: Path, document: str) -> Iterator[str]:
    """Yield the lines that say what a stage did with one document: kept or removed, why, and what was taken out of it.

    Raises:
        PipelineError: the folder is no artifact of documents, or the document did not come into this stage.
    """
    artifact = Artifact(folder, read_manifest(folder))
    if artifact.manifest.stage not in DOCUMENT_STAGES:
        raise PipelineError(f"{folder}: an artifact of {artifact.manifest.stage}, which has no documents to explain")
    kept, removed = (
        [
            row
            for file in files
            for row in pq.read_table(folder / file.name, filters=[("id", "=", document)]).to_pylist()
        ]
        for files in (artifact.manifest.shards, artifact.manifest.removed)
    )
    if not kept and not removed:
        raise PipelineError(f"{folder}: no document {document!r} came into this stage; ids are such as raw/file.txt")
    yield f"{document}: {'kept' if kept else 'removed'} by {artifact.manifest.stage}"
    for row in removed:
        yield f"\n── removed {row['scope']}: {_reason(row)}"
        yield excerpt(row["text"], EXCERPT_CHARACTERS)
    for row in kept:
        yield f"\n── kept  {row['meta']}"
        yield excerpt(row["text"], EXCERPT_CHARACTERS)


def trace_sequence(folder: Path, sequence: int, split: str = "train") -> Iterator[str]:
    """Yield the lines that say from which tokens of which documents a packed sequence was made.

    Raises:
        PipelineError: the folder is no token dataset, or has no such split or sequence.
    """
    artifact = Artifact(folder, read_manifest(folder))
    if artifact.manifest.stage not in SEQUENCE_STAGES:
        raise PipelineError(f"{folder}: an artifact of {artifact.manifest.stage}; give one of pack, or of mix")
    yield "    from  tokens  of the document  document"
    for span in Dataset(folder, split).spans(sequence):
        place = f"{span.document_start}-{span.document_start + span.tokens - 1}"
        yield f"{span.start:8d}{span.tokens:8d}{place:>17}  {span.document}"


def _describe(artifact: Artifact) -> Iterator[str]:
    manifest = artifact.manifest
    yield f"{manifest.stage} artifact {manifest.key}"
    yield f"  files      {len(manifest.files)}, {sum(file.bytes for file in manifest.files) / 1e6:.2f} MB"
    yield f"  made from  {', '.join(manifest.inputs)}"
    yield f"  with       {', '.join(f'{name} {version}' for name, version in manifest.libraries.items())}"
    yield from (f"  {name:<44} {value}" for name, value in manifest.stats.items() if name not in SHOWN_BELOW)


def _show_documents(artifact: Artifact, samples: int) -> Iterator[str]:
    for row in _sample(artifact, artifact.manifest.shards, samples):
        yield f"\n── document {row['id']}  {row['meta']}"
        yield excerpt(row["text"], EXCERPT_CHARACTERS)
    for row in _sample(artifact, artifact.manifest.removed, samples):
        yield f"\n── removed {row['scope']} of {row['id']}: {_reason(row)}"
        yield excerpt(row["text"], EXCERPT_CHARACTERS)


def _show_report(artifact: Artifact, samples: int) -> Iterator[str]:
    report = json.loads((artifact.folder / REPORT).read_text(encoding="utf-8"))
    yield "\n── documents that the most others repeat"
    yield from (f"  {cluster['removed']:6d}  {cluster['kept']}" for cluster in report["clusters"][:samples])
    yield "\n── paragraphs that are repeated most"
    for paragraph in report["repeated_paragraphs"][:samples]:
        yield f"  {paragraph['copies_removed']:6d}  first in {paragraph['kept_in']}: {paragraph['text'][:SHORT_EXCERPT]}"
    yield "\n── pairs near the threshold"
    for pair in report["pairs_near_threshold"][:samples]:
        yield f"  Jaccard {pair['jaccard']:.3f}  {pair['later']}  and  {pair['earlier']}"
        for difference in pair["differences"][:samples]:
            yield f"      {difference['earlier'][:SHORT_EXCERPT]!r} -> {difference['later'][:SHORT_EXCERPT]!r}"


def _show_chunks(artifact: Artifact, samples: int) -> Iterator[str]:
    for row in _sample(artifact, artifact.manifest.shards, samples):
        end = f"  {DOCUMENT_END}" if row["last"] else ""
        yield f"\n── chunk of {row['document_id']} from character {row['start']}, {len(row['text'])} characters{end}"
        yield f"under: {row['heading'] or '(no heading)'}"
        yield excerpt(row["text"], EXCERPT_CHARACTERS)


def _show_sequences(artifact: Artifact, samples: int) -> Iterator[str]:
    dataset = Dataset(artifact.folder)
    for sequence in evenly(len(dataset), samples):
        yield f"\n── sequence {sequence}"
        for span, texts in dataset.decoded(sequence):
            yield f"[{span.document}] {''.join(texts)}{DOCUMENT_END if span.ends else ''}"


def _show_tokens(artifact: Artifact, samples: int) -> Iterator[str]:
    files = [file for file in artifact.manifest.files if file.name.startswith("documents-")]
    yield "\n  tokens  characters  document"
    for row in _sample(artifact, files, samples):
        yield f"{row['tokens']:8d}{row['characters']:12d}  {row['id']}"


def _show_steps(artifact: Artifact, samples: int) -> Iterator[str]:
    steps = read_metrics(artifact.folder / METRICS)
    yield "\n  step      loss  learning rate  gradient norm  tokens/s"
    for index in evenly(len(steps), samples):
        step = steps[index]
        yield (
            f"{step.step:6d}  {step.loss:8.4f}  {step.learning_rate:13.3e}  {norm_or_overflow(step):>13}  "
            f"{step.tokens_per_second:8.0f}"
        )


def _show_losses(artifact: Artifact) -> Iterator[str]:
    yield "\n      loss  perplexity    tokens  held out by"
    for key, loss in losses_of(artifact.manifest.stats["losses"]).items():
        yield f"{loss.loss:10.4f}{loss.perplexity:12.4f}{loss.tokens:10d}  pack {key}"


def _sample(artifact: Artifact, files: Sequence[ArtifactFile], samples: int) -> list[dict[str, Any]]:
    """Return rows evenly spaced over all shards, reading only the shards that they lie in."""
    rows: list[dict[str, Any]] = []
    wanted = evenly(sum(file.rows or 0 for file in files), samples)
    first = 0
    for file in files:
        inside = [index - first for index in wanted if first <= index < first + (file.rows or 0)]
        if inside:
            rows += pq.read_table(artifact.folder / file.name).take(pa.array(inside)).to_pylist()
        first += file.rows or 0
    return rows


def _reason(row: dict[str, Any]) -> str:
    reason = str(row["rule"])
    if row["duplicate_of"]:
        reason += f", repeats {row['duplicate_of']}"
    if row["score"] is not None:
        reason += f", score {row['score']:.3g}, threshold {row['threshold']:.3g}"
    return f"{reason}: {row['detail']}" if row["detail"] else reason
