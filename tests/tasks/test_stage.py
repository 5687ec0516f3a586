"""Keys, restart by unit, damage: an artifact is what its key says, whole, or it is made again."""

import ast
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from configs.errors import PipelineError
from configs.schema import ExecutorConfig, RunConfig
from flows.stages import CHAIN, EVALUATE, MIX
from tasks import dedup, documents, filter, normalize
from tasks.artifact import Manifest, UnitRecord, Workspace, read_manifest
from tasks.executor import LocalExecutor, ProcessExecutor, open_executor
from tasks.raw import list_raw_files
from tasks.stage import Stage, build_artifact
from tests.conftest import PROJECT, SAMPLE, MakeConfig, build_chain, files_of

GOLDEN = PROJECT / "tests" / "golden" / "stage_versions.json"
DATA = (normalize.STAGE, dedup.STAGE, filter.STAGE)


def sample_config(make_config: MakeConfig, workspace: Path, **sections: object) -> RunConfig:
    """A configuration whose normalize stage has many shards."""
    inputs = [{"path": str(SAMPLE / "troubles"), "source": "troubles"}]
    return make_config(inputs=inputs, workspace=str(workspace), **({"normalize": {"shard_bytes": 1500}} | sections))


def build_normalize(config: RunConfig) -> Manifest:
    return build_artifact(normalize.STAGE, config, [list_raw_files(config)], LocalExecutor())


def folder_of(config: RunConfig, manifest: Manifest) -> Path:
    return Workspace(Path(config.workspace)).folder(manifest.stage, manifest.key)


def unit_times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("units/*.json")}


def keys(config: RunConfig) -> dict[str, str]:
    """Return every stage's key, as if each input's key were its name: so a change shows where it acts itself."""
    return {link.stage.name: link.stage.key(config, []) for link in CHAIN}


@pytest.mark.parametrize(
    ("section", "stages"),
    [
        ({"normalize": {"width": False}}, {"normalize"}),
        ({"normalize": {"bad_records_limit": 5}}, set()),
        ({"dedup": {"threshold": 0.7}}, {"dedup"}),
        ({"filter": {"min_characters": 80}}, {"filter"}),
        ({"chunk": {"sequences_per_chunk": 1.0}}, {"chunk"}),
        ({"pack": {"tokenizer": {"vocab_size": 600}}}, {"pack"}),
        ({"pack": {"seq_length": 64}}, {"chunk", "pack", "smoke", "pretrain"}),
        ({"model": {"num_layers": 3}}, {"smoke", "pretrain"}),
        ({"training": {"learning_rate": 1e-3}}, {"smoke", "pretrain"}),
        ({"training": {"timeout_minutes": 5}}, set()),
        ({"smoke": {"steps": 50}}, {"smoke"}),
        ({"pretrain": {"steps": 50}}, {"pretrain"}),
        ({"executor": {"workers": 7}}, set()),
        ({"seed": 9}, {"pack", "smoke", "pretrain"}),
    ],
)
def test_a_key_changes_the_stages_that_obey_it_and_no_other(
    make_config: MakeConfig, section: dict[str, object], stages: set[str]
) -> None:
    before, after = keys(make_config()), keys(make_config(**section))
    assert {stage for stage in before if before[stage] != after[stage]} == stages


def test_a_key_depends_on_content_and_not_on_place_or_time(make_config: MakeConfig, tmp_path: Path) -> None:
    def key(folder: str, text: str) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "a.txt").write_text(text)
        return list_raw_files(make_config(inputs=[{"path": str(tmp_path / folder), "source": "s"}])).key

    first = key("one", "甲")
    assert key("two", "甲") == first
    assert key("one", "乙") != first


def test_a_second_build_takes_what_is_there(make_config: MakeConfig, tmp_path: Path) -> None:
    config = sample_config(make_config, tmp_path / "runs")
    manifest = build_normalize(config)
    before = unit_times(folder_of(config, manifest))
    assert build_normalize(config) == manifest
    assert unit_times(folder_of(config, manifest)) == before


@pytest.mark.parametrize("damage", ["deleted", "changed", "manifest"])
def test_a_damaged_shard_is_noticed_and_it_alone_made_again(
    make_config: MakeConfig, tmp_path: Path, damage: str
) -> None:
    config = sample_config(make_config, tmp_path / "runs")
    manifest = build_normalize(config)
    folder = folder_of(config, manifest)
    whole, before = files_of(folder), unit_times(folder)
    victim = folder / "part-00001.parquet"
    if damage == "deleted":
        victim.unlink()
    elif damage == "changed":
        content = bytearray(victim.read_bytes())
        content[40] ^= 1
        victim.write_bytes(content)
    else:
        (folder / "manifest.json").write_text("{", encoding="utf-8")
    assert Workspace(Path(config.workspace)).find("normalize", manifest.key) is None
    build_normalize(config)
    assert files_of(folder) == whole
    again = {name for name, moment in unit_times(folder).items() if before[name] != moment}
    assert again == (set() if damage == "manifest" else {"files-00001.json"})


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_number_of_workers_decides_nothing(make_config: MakeConfig, tmp_path: Path, workers: int) -> None:
    alone = sample_config(make_config, tmp_path / "alone")
    expected = [files_of(artifact.folder) for artifact in build_chain(alone, *DATA)]
    config = sample_config(make_config, tmp_path / "many")
    given: object = list_raw_files(config)
    with open_executor(ExecutorConfig(workers=workers)) as executor:
        for stage, content in zip(DATA, expected, strict=True):
            given = build_artifact(stage, config, [given], executor)  # type: ignore[list-item]
            assert files_of(folder_of(config, given)) == content


def test_two_builds_at_once_give_one_artifact(make_config: MakeConfig, tmp_path: Path) -> None:
    config = sample_config(make_config, tmp_path / "runs")
    manifests: list[Manifest] = []
    threads = [threading.Thread(target=lambda: manifests.append(build_normalize(config))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(manifests) == 3
    assert manifests[0] == manifests[1] == manifests[2]
    assert [path.name for path in (tmp_path / "runs" / "artifacts" / "normalize").iterdir() if path.is_dir()] == [
        manifests[0].key
    ]


def test_kill_9_in_the_middle_keeps_finished_shards(make_config: MakeConfig, tmp_path: Path) -> None:
    undisturbed = sample_config(make_config, tmp_path / "undisturbed")
    expected = files_of(folder_of(undisturbed, build_normalize(undisturbed)))
    config = sample_config(make_config, tmp_path / "killed")
    (tmp_path / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    code = (
        "import sys, pathlib, tests.tasks.test_stage as t\n"
        "from configs.schema import RunConfig\n"
        "t.build_normalize(RunConfig.model_validate_json(pathlib.Path(sys.argv[1]).read_text()))"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "config.json")], cwd=PROJECT)
    drafts = tmp_path / "killed" / "artifacts" / "normalize"
    while child.poll() is None and len(list(drafts.glob(".*.draft/units/*.json"))) < 3:
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL, "it ended before it could be killed: give it more shards"
    (draft,) = drafts.glob(".*.draft")
    finished = unit_times(draft)
    assert len(finished) >= 3
    (draft / ".part-00009.parquet.1234.tmp").write_bytes(b"half")  # as if it had been killed while it wrote
    folder = folder_of(config, build_normalize(config))
    after = unit_times(folder)
    assert {name: after[name] for name in finished} == finished
    assert files_of(folder) == expected


def test_no_space_is_a_message_and_finished_shards_stay(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised by hand: a full disk would need a file system of its own."""
    config = sample_config(make_config, tmp_path / "runs")
    real = documents.write_documents
    written: list[int] = []

    def full(folder: Path, index: int, *rest: object) -> object:
        if index == 2:
            raise OSError(28, "No space left on device", str(folder))
        return counted(folder, index, *rest)

    def counted(folder: Path, index: int, *rest: object) -> object:
        written.append(index)
        return real(folder, index, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(normalize, "write_documents", full)
    with pytest.raises(PipelineError, match="no space left while normalize was writing"):
        build_normalize(config)
    monkeypatch.setattr(normalize, "write_documents", counted)
    build_normalize(config)
    assert [index for index, count in Counter(written).items() if count > 1] == []


def test_a_workspace_that_cannot_be_written_is_named(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "runs" / "artifacts").mkdir(parents=True)
    (tmp_path / "runs" / "artifacts" / "normalize").touch()
    with pytest.raises(PipelineError, match=r"artifacts/normalize: File exists"):
        build_normalize(sample_config(make_config, tmp_path / "runs"))


def test_a_worker_that_is_killed_is_a_message() -> None:
    executor = ProcessExecutor(2)
    with pytest.raises(PipelineError, match="ended from outside"):
        executor.map(_end_yourself, [0, 1, 2], lambda _: None)


def test_results_come_in_the_order_of_the_arguments() -> None:
    with open_executor(ExecutorConfig(workers=2)) as executor:
        assert executor.map(_slower_for_small, list(range(8)), lambda _: None) == list(range(8))


def test_documents_in_are_kept_or_removed_at_every_stage(make_config: MakeConfig, tmp_path: Path) -> None:
    before = None
    for artifact in build_chain(sample_config(make_config, tmp_path / "runs"), *DATA):
        stats = artifact.manifest.stats
        gone = sum(count for name, count in stats.items() if name.startswith("documents_removed:"))
        assert stats["documents_in"] == stats["documents_kept"] + gone
        assert before in (None, stats["documents_in"])
        assert sum(file.rows or 0 for file in artifact.manifest.shards) == stats["documents_kept"]
        before = stats["documents_kept"]


def test_a_folder_that_is_no_artifact_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"no artifact \(it has no manifest.json\)"):
        read_manifest(tmp_path)


def test_a_unit_record_is_valid_only_with_its_files(tmp_path: Path) -> None:
    draft_of = Workspace(tmp_path)
    with draft_of.draft("filter", "k") as draft:
        (draft.folder / "part-00000.parquet").write_bytes(b"rows")
        record = draft.finish("documents-00000", {"part-00000.parquet": 1}, Counter(documents=1))
        assert draft.finished("documents-00000") == record
        assert isinstance(record, UnitRecord)
        (draft.folder / "part-00000.parquet").write_bytes(b"rowz")
        assert draft.finished("documents-00000") is None


@pytest.mark.parametrize("stage", [link.stage for link in (*CHAIN, MIX, EVALUATE)], ids=lambda stage: stage.name)
def test_a_stage_whose_code_changed_has_been_looked_at(stage: Stage) -> None:
    """When this fails: if the stage's output changed, raise `version` in its STAGE; then run with UPDATE_GOLDEN=1."""
    digests = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    found = {"version": stage.version, "code": _digest(stage)}
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(digests | {stage.name: found}, indent=1) + "\n", encoding="utf-8")
    else:
        assert found == digests[stage.name]


def _digest(stage: Stage) -> str:
    """Return a hash of the code of a stage's own modules, comments and layout aside."""
    package, module = PROJECT / "tasks" / stage.name, PROJECT / "tasks" / f"{stage.name}.py"
    shared = [
        PROJECT / "tasks" / f"{name}.py" for name in ("blocks", "code_points", "encoding", "headings", "verbatim")
    ]
    shared += sorted((PROJECT / "tasks" / "readers").glob("*.py")) if stage.name == "normalize" else []
    if stage.name in ("pack", "smoke", "pretrain", "evaluate"):
        shared = sorted((PROJECT / "tasks" / "train").glob("*.py")) if stage.name != "pack" else []
    files = [*sorted(package.rglob("*.py")), *([module] if module.exists() else []), *shared]
    trees = "".join(ast.dump(ast.parse(file.read_text(encoding="utf-8"))) for file in files)
    return hashlib.sha256(trees.encode()).hexdigest()[:16]


def _end_yourself(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _slower_for_small(number: int) -> int:
    time.sleep(0.02 * (8 - number))
    return number
