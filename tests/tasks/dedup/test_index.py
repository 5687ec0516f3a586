"""With an index, batch after batch gives what one run over everything gives."""

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs.errors import PipelineError
from configs.schema import RunConfig
from tasks import dedup, normalize
from tasks.artifact import Artifact
from tasks.documents import read_table
from tests.conftest import SAMPLE, BenchRecords, build_chain

SETTINGS: dict[str, Any] = {"paragraph_copies": 1, "edge_copies": 2, "bucket_limit": 8}


def write_batch(folder: Path, texts: Sequence[str], first: int) -> None:
    folder.mkdir(parents=True)
    lines = [json.dumps({"text": text, "id": first + place}, ensure_ascii=False) for place, text in enumerate(texts)]
    (folder / "batch.jsonl").write_text("\n".join(lines), encoding="utf-8")


def run(workspace: Path, batches: Sequence[Path], shard_bytes: int = 20_000, **section: Any) -> Artifact:
    config = RunConfig.model_validate(
        {
            "inputs": [{"path": str(batch), "source": batch.name} for batch in batches],
            "workspace": str(workspace),
            "normalize": {"shard_bytes": shard_bytes},
            "dedup": SETTINGS | section,
        }
    )
    return build_chain(config, normalize.STAGE, dedup.STAGE)[-1]


def kept(artifacts: Sequence[Artifact]) -> list[tuple[str, str]]:
    return [
        (row["id"], row["text"])
        for artifact in artifacts
        for path in artifact.shards
        for row in read_table(path, ["id", "text"]).to_pylist()
    ]


def removed(artifacts: Sequence[Artifact]) -> list[tuple[Any, ...]]:
    return sorted(
        tuple(row.values())
        for artifact in artifacts
        for path in artifact.paths(artifact.manifest.removed)
        for row in read_table(path, ["id", "rule", "text", "duplicate_of", "detail"]).to_pylist()
    )


def incrementally(folder: Path, batches: Sequence[Path], **section: Any) -> list[Artifact]:
    artifacts: list[Artifact] = []
    for batch in batches:
        index = str(artifacts[-1].folder) if artifacts else None
        artifacts.append(run(folder / "runs", [batch], **section, index=index))
    return artifacts


def with_repetitions(texts: list[str], seed: int) -> list[str]:
    """Return texts among which are copies, versions, and paragraphs of others, in any order."""
    draw = random.Random(seed)
    paragraphs = [part for text in texts for part in text.split("\n\n") if len(part) > 60]
    copies = draw.choices(texts, k=len(texts) // 3)
    versions = []
    for text in draw.choices(texts, k=len(texts)):
        place = draw.randrange(len(text))
        versions.append(text[:place] + draw.choice("改动了几个字") * draw.randrange(1, 4) + text[place:])
    quoting = [
        f"{text}\n\n{draw.choice(paragraphs)}\n\n上一篇 目录 下一篇" for text in draw.choices(texts, k=len(texts))
    ]
    everything = texts + copies + versions + quoting
    draw.shuffle(everything)
    return everything


SAMPLE_TEXTS = [path.read_text(encoding="utf-8") for path in sorted((SAMPLE / "articles").glob("*.md"))][:8]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), cuts=st.sets(st.integers(1, 25), min_size=1, max_size=3), exact=st.booleans())
def test_any_split_into_batches_gives_what_one_run_gives(
    tmp_path: Path, seed: int, cuts: set[int], exact: bool
) -> None:
    folder = tmp_path / f"{seed}-{exact}-{'-'.join(map(str, sorted(cuts)))}"
    shutil.rmtree(folder, ignore_errors=True)
    texts = with_repetitions(SAMPLE_TEXTS, seed)
    bounds = [0, *sorted(cuts), len(texts)]
    batches = [folder / f"batch{number}" for number in range(len(bounds) - 1)]
    for batch, start, end in zip(batches, bounds[:-1], bounds[1:], strict=True):
        write_batch(batch, texts[start:end], start)
    verify = "exact" if exact else "signatures"
    one, several = [run(folder / "one", batches, verify=verify)], incrementally(folder, batches, verify=verify)
    assert kept(several) == kept(one)
    assert removed(several) == removed(one)
    assert len(kept(one)) < len(texts)


def test_real_documents_in_batches(bench_records: BenchRecords, tmp_path: Path) -> None:
    """900 documents of three sources, which hold many versions and copies of one another, in five batches."""
    sources = ("mindspore_zh", "paddle_zh", "cpp_zh_tw")
    texts = [record["text"] for source in sources for record in bench_records(source, 300)]
    random.Random(4).shuffle(texts)
    batches = [tmp_path / f"batch{number}" for number in range(5)]
    for number, batch in enumerate(batches):
        write_batch(batch, texts[number * 180 : (number + 1) * 180], number)
    one = [run(tmp_path / "one", batches, 300_000)]
    several = incrementally(tmp_path, batches, shard_bytes=300_000)
    assert kept(several) == kept(one)
    assert removed(several) == removed(one)
    assert len(removed(one)) > 50


@pytest.fixture
def first_batch(tmp_path: Path) -> Artifact:
    write_batch(tmp_path / "batch0", SAMPLE_TEXTS[:4], 0)
    return run(tmp_path / "runs", [tmp_path / "batch0"])


def second(tmp_path: Path, index: Path, **section: Any) -> Artifact:
    if not (tmp_path / "batch1").exists():
        write_batch(tmp_path / "batch1", SAMPLE_TEXTS[2:], 9)
    return run(tmp_path / "runs", [tmp_path / "batch1"], index=str(index), **section)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"permutations": 64}, "made with permutations 128, but this run has 64"),
        ({"shingles": "char-5"}, "made with shingles mixed-5, but this run has char-5"),
        ({"scheme": "affine64"}, "made with scheme affine32, but this run has affine64"),
    ],
)
def test_an_index_of_other_parameters_is_refused(
    tmp_path: Path, first_batch: Artifact, section: dict[str, Any], message: str
) -> None:
    with pytest.raises(PipelineError, match=message):
        second(tmp_path, first_batch.folder, **section)


def test_an_index_of_another_library_version_is_refused(tmp_path: Path, first_batch: Artifact) -> None:
    file = first_batch.folder / "manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    manifest["libraries"]["datasketch"] = "1.9.0"
    file.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(PipelineError, match=r"made with datasketch 1\.9\.0, but this run has 2\."):
        second(tmp_path, first_batch.folder)


def test_a_damaged_or_wrong_index_is_refused(tmp_path: Path, first_batch: Artifact) -> None:
    normalized = tmp_path / "runs" / "artifacts" / "normalize" / first_batch.manifest.inputs[0]
    with pytest.raises(PipelineError, match="an artifact of normalize; give one of dedup"):
        second(tmp_path, normalized)
    with pytest.raises(PipelineError, match="no artifact"):
        second(tmp_path, tmp_path / "nowhere")
    signatures = first_batch.folder / "index" / "signatures-00000.npy"
    data = signatures.read_bytes()
    signatures.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(PipelineError, match=r"signatures-00000\.npy: missing or changed since it was made"):
        second(tmp_path, first_batch.folder)
    signatures.write_bytes(data)
    shutil.rmtree(normalized)
    with pytest.raises(PipelineError, match="the documents that it stands for are gone"):
        second(tmp_path, first_batch.folder)


def test_a_file_that_the_index_knows_is_refused(tmp_path: Path, first_batch: Artifact) -> None:
    with pytest.raises(PipelineError, match=r"the document id 'batch0/batch.jsonl#1' is given twice"):
        run(tmp_path / "runs", [tmp_path / "batch0"], index=str(first_batch.folder))


def test_an_index_removes_what_it_knows_and_names_it(tmp_path: Path, first_batch: Artifact) -> None:
    artifact = second(tmp_path, first_batch.folder)
    gone = {row[0]: row[3] for row in removed([artifact]) if row[1] == "exact_duplicate"}
    assert gone == {f"batch1/batch.jsonl#{line}": f"batch0/batch.jsonl#{line + 2}" for line in (1, 2)}
