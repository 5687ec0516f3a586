"""What dedup of a large corpus will need, reckoned from what a sample of it takes here and now.

The sample are shards of the configuration's own normalized documents, so that the length of documents, the share of
repetitions and the speed of this machine are those of the case, not of a table.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from configs.errors import ConfigError, PipelineError
from configs.schema import RunConfig
from configs.sizes import parse_size, show_size, show_time
from tasks import dedup, normalize
from tasks.artifact import Artifact, Manifest, UnitRecord, Workspace
from tasks.documents import read_table
from tasks.executor import LocalExecutor
from tasks.raw import list_raw_files
from tasks.stage import build_artifact

SAMPLE_BYTES = 64_000_000
# Of the passes over the whole corpus, the largest holds two hashes and two orders of every document (see the bench).
MEMORY_A_DOCUMENT, MEMORY_A_WORKER = 100, 600_000_000


@dataclass(frozen=True)
class DedupPlan:
    """Needs of dedup for `corpus_bytes` of text (UTF-8). Bytes and seconds; `disk_work` is free again at the end."""

    sample_bytes: int
    bytes_a_second: float
    documents: int
    disk_documents: int
    disk_index: int
    disk_work: int
    memory_largest_process: int
    core_seconds: float


def plan_dedup(config: RunConfig, corpus_bytes: int) -> DedupPlan:
    """Run dedup over a sample of the normalized documents on one core, and multiply.

    Raises:
        PipelineError: the configuration's inputs have not been normalized yet.
    """
    workspace = Workspace(Path(config.workspace))
    given = workspace.find("normalize", normalize.STAGE.key(config, [list_raw_files(config)]))
    if given is None:
        raise PipelineError(
            "plan: there are no normalized documents of this configuration to measure; run `mindpretrain run CONFIG "
            "--until normalize` first, on all inputs or a sample of them"
        )
    sample, size = _sample(workspace.open(given))
    _measure(config, workspace, sample)  # once for compiling
    built, seconds, work = _measure(config, workspace, sample)
    share = corpus_bytes / size
    index = sum(file.bytes for file in built.files if file.name.startswith("index/"))
    documents = int(share * built.stats["documents_in"])
    return DedupPlan(
        sample_bytes=size,
        bytes_a_second=size / seconds,
        documents=documents,
        disk_documents=int(share * sum(file.bytes for file in (*built.shards, *built.removed))),
        disk_index=int(share * index),
        disk_work=int(share * work),
        memory_largest_process=MEMORY_A_WORKER + MEMORY_A_DOCUMENT * documents,
        core_seconds=seconds * share,
    )


def dedup_rows(config: RunConfig, corpus: str, cores: int) -> list[tuple[str, str]]:
    """Return names and values of the plan for a corpus of this size, such as 200GB.

    Raises:
        ConfigError: it is no size.
    """
    try:
        size = parse_size(corpus)
    except ValueError as error:
        raise ConfigError("--corpus", [str(error)]) from None
    planned = plan_dedup(config, size)
    rows = [
        ("measured", f"{show_size(planned.bytes_a_second)}/s a core, on {show_size(planned.sample_bytes)} of text"),
        ("documents", f"{planned.documents:,}"),
        ("disk, documents kept and removed", show_size(planned.disk_documents)),
        ("disk, index for later runs", show_size(planned.disk_index)),
        ("disk, while it runs", show_size(planned.disk_work)),
        ("memory of the largest process", show_size(planned.memory_largest_process)),
        ("time on one core", show_time(planned.core_seconds)),
        (f"time on {cores} cores, at best", show_time(planned.core_seconds / cores)),
    ]
    return rows if cores > 1 else rows[:-1]


def _sample(artifact: Artifact) -> tuple[Manifest, int]:
    """Return the manifest cut to shards of about `SAMPLE_BYTES` of text, and how much they have."""
    files, size = [], 0
    for file, path in zip(artifact.manifest.shards, artifact.shards, strict=True):
        size += pc.sum(pc.binary_length(read_table(path, ["text"])["text"])).as_py() or 0
        files.append(file)
        if size >= SAMPLE_BYTES:
            break
    if not size:
        raise PipelineError("plan: the normalized documents are empty; there is nothing to measure")
    return artifact.manifest.model_copy(update={"files": tuple(files)}), size


def _measure(config: RunConfig, workspace: Workspace, sample: Manifest) -> tuple[Manifest, float, int]:
    """Return the artifact's manifest, the seconds that it took, and the bytes of files that did not stay."""
    with tempfile.TemporaryDirectory(prefix="mindpretrain-plan-") as folder:
        place = Workspace(Path(folder)).folder("normalize", sample.key)
        place.parent.mkdir(parents=True)
        place.symlink_to(workspace.folder("normalize", sample.key).absolute())
        alone = config.model_copy(
            update={"workspace": folder, "dedup": config.dedup.model_copy(update={"index": None})}
        )
        start = time.perf_counter()
        built = build_artifact(dedup.STAGE, alone, [sample], LocalExecutor())
        seconds = time.perf_counter() - start
        units = Workspace(Path(folder)).folder("dedup", built.key) / "units"
        written = [file for record in units.glob("*.json") for file in _files(record)]
        return built, seconds, sum(size for name, size in written if name.startswith("work/"))


def _files(record: Path) -> list[tuple[str, int]]:
    return [(file.name, file.bytes) for file in UnitRecord.model_validate_json(record.read_text("utf-8")).files]
