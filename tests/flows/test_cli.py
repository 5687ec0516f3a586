"""The command: samples of every artifact, checks before a run, and messages instead of tracebacks."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import COMMAND, PROJECT
from tests.flows.conftest import STAGES, artifact_of, write_config


def command(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [str(COMMAND), *map(str, arguments)], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("stage", STAGES)
def test_inspect_shows_figures_and_samples(finished: tuple[Path, str], stage: str) -> None:
    folder = artifact_of(finished[0], stage)
    done = command("inspect", folder, "-n", "40")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{stage} artifact {folder.name}\n")
    expected = {
        "normalize": r"── document troubles/\S+ .*encoding",
        "dedup": r"── removed document of \S+version_\d.md: near_duplicate, repeats \S+version_1.md, score 0\.\d+",
        "filter": r"── removed (?:document|line) of troubles/\S+: \w+",
        "chunk": r"── chunk of troubles/\S+ from character \d+, \d+ characters",
        "pack": r"\[troubles/\S+\] (?s:.*)⟦end of document⟧",
        "smoke": r"\n +20 +\d\.\d{4} +\S+ +\d\.\d+ +\d+\n",
        "pretrain": r"\n +20 +\d\.\d{4} +\S+ +\d\.\d+ +\d+\n",
    }[stage]
    assert re.search(expected, done.stdout), done.stdout


def test_inspect_explains_what_became_of_a_document(finished: tuple[Path, str]) -> None:
    folder = artifact_of(finished[0], "dedup")
    done = command("inspect", folder, "--document", "troubles/version_2.md")
    lines = done.stdout.splitlines()
    assert lines[0] == "troubles/version_2.md: removed by dedup"
    reason = (
        r"── removed document: near_duplicate, repeats troubles/version_1\.md, score 0\.\d+, threshold 0\.8: (\w+ \w+)"
    )
    found = re.fullmatch(reason, lines[2])
    assert found
    assert found[1] in ("exact Jaccard", "signatures agree")
    kept = command("inspect", folder, "--document", "troubles/copied_paragraph_2.md").stdout
    assert kept.startswith("troubles/copied_paragraph_2.md: kept by dedup\n")
    assert "removed paragraph: repeated_paragraph, repeats troubles/copied_paragraph_1.md" in kept
    unknown = command("inspect", folder, "--document", "nowhere")
    assert (unknown.returncode, "no document 'nowhere' came into this stage" in unknown.stderr) == (1, True)


def test_tokens_from_elsewhere_are_checked(finished: tuple[Path, str], tmp_path: Path) -> None:
    folder = artifact_of(finished[0], "pack")
    done = command("check-tokens", folder, "--tokenizer", folder / "tokenizer")
    assert (done.returncode, "train-00000.bin: " in done.stdout) == (0, True), done.stderr
    (tmp_path / "lines.bin").write_bytes(bytes([9, 0, 0, 0, 0, 0, 0, 0]) * 50)
    wrong = command("check-tokens", tmp_path / "lines.bin", "--tokenizer", folder / "tokenizer", "--dtype", "int32")
    assert (wrong.returncode, "50.0% of the tokens are eos, one in 2" in wrong.stderr) == (1, True)


def test_trace_names_the_documents_of_a_sequence(finished: tuple[Path, str]) -> None:
    """Sequences have seq_length + 1 = 65 tokens, and are filled without gaps."""
    folder = artifact_of(finished[0], "pack")
    done = command("trace", folder, "0")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    tokens = [int(row[1]) for row in rows]
    assert sum(tokens) == 65
    assert [int(row[0]) for row in rows] == [sum(tokens[:place]) for place in range(len(tokens))]
    for row in rows:
        first, last = map(int, row[2].split("-"))
        assert last - first + 1 == int(row[1])
        assert row[3].startswith("troubles/")
    beyond = command("trace", folder, "999999")
    assert (beyond.returncode, "no sequence 999999; its sequences are 0 to" in beyond.stderr) == (1, True)


def test_plan_multiplies_what_a_sample_takes(finished: tuple[Path, str]) -> None:
    done = command("plan", finished[0], "--corpus", "200GB", "--cores", "256")
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    stats = json.loads((artifact_of(finished[0], "normalize") / "stats.json").read_text(encoding="utf-8"))
    documents = int(rows["documents"].strip().replace(",", ""))
    assert 200e9 / documents == pytest.approx(stats["characters"] * 3 / stats["documents_kept"], rel=0.35)
    assert rows["time on 256 cores, at best"]
    wrong = command("plan", finished[0], "--corpus", "much")
    assert (wrong.returncode, "'much' is no size; write a number and a unit" in wrong.stderr) == (2, True)


def test_plan_needs_normalized_documents(tmp_path: Path) -> None:
    done = command("plan", write_config(tmp_path), "--corpus", "1TB")
    assert (done.returncode, "run `mindpretrain run CONFIG --until normalize` first" in done.stderr) == (1, True)


def test_inspect_of_something_else_is_a_message(tmp_path: Path) -> None:
    done = command("inspect", tmp_path)
    assert (done.returncode, done.stderr.startswith(f"error: {tmp_path}: no artifact")) == (1, True)


def test_check_finds_nothing_in_the_shipped_configuration() -> None:
    done = command("check", "configs/demo.yaml")
    assert (done.returncode, done.stdout) == (0, "configs/demo.yaml: no problem found\n")


def test_check_reports_every_problem_with_its_key(tmp_path: Path) -> None:
    config = write_config(
        tmp_path,
        inputs=[{"path": str(tmp_path / "none"), "source": "none"}],
        normalize={"protected_words": "none.txt"},
        pack={"tokenizer": {"path": str(tmp_path)}},
        pretrain={"steps": 5, "checkpoint_every": 10},
    )
    done = command("check", config)
    assert done.returncode == 1
    for key in ("inputs: ", "normalize.protected_words: ", "pack.tokenizer.path: ", "pretrain.checkpoint_every: "):
        assert re.search(f"^{re.escape(key)}", done.stderr, re.MULTILINE), key
    assert done.stderr.strip().endswith("4 problems")


@pytest.mark.parametrize("how", ["check", "run"])
def test_a_bad_configuration_is_a_message(tmp_path: Path, how: str) -> None:
    config = write_config(tmp_path, smok={"steps": 10})
    done = command(how, config)
    assert done.returncode == 2
    assert "smok: unknown key; did you mean smoke?" in done.stderr


def test_wrong_use_ends_with_status_2() -> None:
    assert command("run").returncode == 2
    assert command("run", "configs/demo.yaml", "--until", "tokenize").returncode == 2
