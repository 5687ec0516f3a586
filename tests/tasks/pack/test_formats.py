"""What mindformers reads is what was written, and our own arithmetic of samples is its own."""

import importlib.util
import json
import shutil
import struct
import subprocess
import sys
import sysconfig
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import smoke
from tasks.artifact import Artifact
from tasks.executor import LocalExecutor
from tasks.pack.dataset import Dataset
from tasks.pack.megatron import groups, write_index
from tasks.pack.outputs import dataset_files
from tasks.stage import build_artifact
from tasks.train.columns import training_columns
from tasks.train.job import METRICS
from tasks.train.launch import train
from tasks.train.megatron_helpers import build_blending_indices, build_exhaustive_blending_indices, build_sample_idx
from tasks.train.metrics import StepMetrics
from tasks.train.msrun import environment
from tests.conftest import build_chain
from tests.tasks.pack.conftest import STAGES, sample_config
from tests.tasks.train.jobs import curve, make_job

EOS, PAD = 0, 1

GPT_COLUMNS = """
import json, sys, numpy as np
from mindformers.dataset.blended_datasets.gpt_dataset import _get_eod_attention_mask, _get_ltor_masks_and_position_ids
rows = np.load(sys.argv[1])
found = []
for row in rows:
    tokens = row[:-1]
    _, mask, positions = _get_ltor_masks_and_position_ids(tokens, 0, True, True, False, False)
    ends = _get_eod_attention_mask(tokens, 0, 128)
    found.append([mask.astype(int).tolist(), positions.astype(int).tolist(), ends.tolist()])
json.dump(found, open(sys.argv[2], "w"))
"""

PACKERS = """
import json, sys
from mindformers.dataset.handler.packing_handler import PackingConfig, pack_examples, truncate_examples
documents = json.loads(sys.argv[1])
columns = ["input_ids", "labels", "actual_seq_len"]
config = PackingConfig(seq_length=int(sys.argv[2]), output_columns=columns)
rows = [{"input_ids": d, "labels": d} for d in documents]
packed = pack_examples(rows, config)
cut = truncate_examples({"input_ids": documents, "labels": documents}, config)
json.dump({"packed": {c: list(packed[c]) for c in columns}, "truncated": cut}, open(sys.argv[3], "w"))
"""


def in_mindformers(code: str, folder: Path, *arguments: str) -> Any:
    """Run code that imports mindformers in a process of its own; return the JSON that it writes."""
    target = folder / "answer.json"
    command = [sys.executable, "-c", code, *arguments, str(target)]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(target.read_text(encoding="utf-8"))


def test_columns_are_those_of_mindformers_own_dataset(tmp_path: Path) -> None:
    """Rows with documents that end inside, at the last input, and as the label alone."""
    rows = np.array([[5, 6, EOS, 7, 8, EOS, 9, 9, 9], [4, 4, 4, 4, 4, 4, 4, EOS, 3], [2] * 8 + [EOS]])
    ours = training_columns(rows, EOS, -1, reset_positions=True, documents=3)
    np.save(tmp_path / "rows.npy", rows)
    theirs = in_mindformers(GPT_COLUMNS, tmp_path, str(tmp_path / "rows.npy"))
    for row, (mask, positions, actual) in enumerate(theirs):
        assert ours["loss_mask"][row].tolist() == mask
        assert ours["position_ids"][row].tolist() == positions
        assert ours["actual_seq_len"][row].tolist() == actual
    np.testing.assert_array_equal(ours["input_ids"], rows[:, :-1])
    np.testing.assert_array_equal(ours["labels"], rows[:, 1:])


def test_padding_is_left_out_of_the_loss_and_a_pad_token_in_a_text_is_not() -> None:
    rows = np.array([[5, PAD, 6, EOS, PAD, PAD]])
    columns = training_columns(rows, EOS, PAD, reset_positions=False, documents=1)
    assert columns["loss_mask"].tolist() == [[1, 1, 1, 0, 0]]
    assert columns["position_ids"].tolist() == [[0, 1, 2, 3, 4]]
    assert columns["actual_seq_len"][0, :3].tolist() == [4, 5, 5]
    assert columns["actual_seq_len"].shape == (1, 128)


def test_mindformers_own_packers_drop_and_mislabel_where_ours_keeps_and_labels(tmp_path: Path) -> None:
    """Four documents of 5, 13, 3 and 3 tokens (eos is 2) for sequences of 8. mindformers' `pack` leaves the long one out, 13
    of 24 tokens, and labels the last token of each document with padding that counts; its `truncate` says that a
    document has -2 tokens. Ours keeps all 24, and each last word is labelled with eos.
    """
    documents = [[10, 11, 12, 13, 2], [*range(20, 32), 2], [40, 41, 2], [50, 51, 2]]
    found = in_mindformers(PACKERS, tmp_path, json.dumps(documents), "8")
    kept = [token for row in found["packed"]["input_ids"] for token in row if token]
    assert len(kept) == 11
    assert not set(range(20, 32)) & set(kept)
    row, labels = found["packed"]["input_ids"][0], found["packed"]["labels"][0]
    assert labels[row.index(2)] == 0  # the pad token, not -100: the loss counts it
    assert min(length for row in found["truncated"]["actual_seq_len"] for length in row) == -2

    rows = _packed(documents, 8)
    columns = training_columns(rows, 2, 0, reset_positions=False, documents=4)
    assert sorted(set(rows.ravel().tolist()) - {0}) == sorted({token for document in documents for token in document})
    inputs, targets, mask = (columns[name].ravel() for name in ("input_ids", "labels", "loss_mask"))
    for document in documents:
        (place,) = [p for p in np.flatnonzero(inputs == document[-2]) if mask[p]]
        assert targets[place] == 2
    assert np.count_nonzero((targets == 2) & (mask == 1)) == 4
    assert not ((targets == 0) & (mask == 1)).any()


def _packed(documents: list[list[int]], seq_length: int) -> np.ndarray:  # type: ignore[type-arg]
    """Pack documents of ids by best fit, as the stage does."""
    from tasks.pack.plan import PADDING, Runs, best_fit, cut_documents, spans_of

    lengths = np.array([len(document) for document in documents])
    chunks = Runs(np.arange(lengths.size), np.zeros_like(lengths), lengths)
    plan = best_fit(cut_documents(lengths, chunks, seq_length + 1), seq_length + 1, 1.0, np.random.default_rng(0))
    rows = np.zeros((plan.order.size, seq_length + 1), np.int32)
    spans = spans_of(plan, 0, plan.order.size)
    for row, start, document, first, count in zip(
        spans.sequence, spans.start, spans.document, spans.document_start, spans.tokens, strict=True
    ):
        if document != PADDING:
            rows[row, start : start + count] = documents[document][first : first + count]
    return rows


@pytest.mark.parametrize(
    ("pack", "dataset"),
    [
        ({"strategy": "best_fit", "mindrecord_columns": "training", "shard_bytes": 65536}, "mindrecord"),
        ({"outputs": ["megatron"], "shard_bytes": 65536}, "megatron"),
    ],
    ids=["mindrecord of all columns, in several files", "megatron, a blend of several files"],
)
def test_the_model_trains_on_what_was_packed(tmp_path: Path, pack: dict[str, Any], dataset: str) -> None:
    """mindformers' own dataset classes and Trainer, ten steps; the plain MindRecord is what every other training reads."""
    training = {"dataset": dataset, "batch_size": 4, "learning_rate": 3e-3}
    model = {"hidden_size": 32, "intermediate_size": 64, "num_layers": 1, "num_heads": 2}
    config = sample_config(tmp_path, training=training, model=model, smoke={"steps": 10, "min_loss_drop": 0.0}, **pack)
    packed = build_chain(config, *STAGES)[-1]
    made = build_artifact(smoke.STAGE, config, [packed.manifest], LocalExecutor())
    lines = (tmp_path / "artifacts" / "smoke" / made.key / METRICS).read_text(encoding="utf-8").splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert len(losses) == 10
    assert losses[-1] < losses[0]
    assert abs(losses[0] - np.log(1500)) < 0.3  # a model that knows nothing: the mask leaves no more and no less out


class _StoppedError(Exception):
    """Ends a training from outside."""


def _stop_after_14(step: StepMetrics) -> None:
    if step.step == 14:
        raise _StoppedError


@pytest.mark.slow
def test_a_training_on_megatron_files_resumes_exactly_and_two_workers_equal_one(tmp_path: Path) -> None:
    config = sample_config(
        tmp_path, outputs=["megatron"], shard_bytes=65536, training={"dataset": "megatron", "batch_size": 4}
    )
    dataset = dataset_files(build_chain(config, *STAGES)[-1], config)
    one, stopped, two = (
        replace(
            make_job(tmp_path / name, tmp_path, steps=20, checkpoint_every=10, **settings),
            dataset=dataset, vocab_size=1500, sequences=500,
        )
        for name, settings in (
            ("one", {"batch_size": 4}), ("stopped", {"batch_size": 4}), ("two", {"batch_size": 2, "workers": 2}),
        )
    )  # fmt: skip
    train(one, lambda _: None)
    with pytest.raises(_StoppedError):
        train(stopped, _stop_after_14)
    train(stopped, lambda _: None)
    train(two, lambda _: None)
    assert curve(stopped) == curve(one)
    np.testing.assert_allclose([step[1] for step in curve(two)], [step[1] for step in curve(one)], atol=1e-5)


def test_megatron_files_hold_every_document_with_its_eos(best_fit: list[Artifact]) -> None:
    """Read by hand, byte for byte; mindformers' own reader has read them while they were made."""
    artifact = best_fit[-1]
    stats, documents = artifact.manifest.stats, []
    for index in sorted((artifact.folder / "megatron").glob("*.idx")):
        header = index.read_bytes()
        assert header[:9] == b"MMIDIDX\x00\x00"
        version, code, sequences, ends = struct.unpack("<QBQQ", header[9:34])
        assert (version, code, ends) == (1, 8, sequences + 1)  # 8 is uint16
        lengths = np.frombuffer(header, np.int32, sequences, 34)
        pointers = np.frombuffer(header, np.int64, sequences, 34 + 4 * sequences)
        assert len(header) == 34 + 12 * sequences + 8 * ends
        tokens = np.fromfile(index.with_suffix(".bin"), np.uint16)
        assert tokens.size == lengths.sum()
        documents += [tokens[p // 2 : p // 2 + n].tolist() for p, n in zip(pointers, lengths, strict=True)]
    assert len(documents) == stats["documents"] + stats["documents_held_out"]
    assert all(document[-1] == stats["eos_id"] and stats["eos_id"] not in document[:-1] for document in documents)
    assert sum(map(len, documents)) == stats["tokens_in"]
    checked = json.loads((artifact.folder / "megatron" / "read_back.json").read_text(encoding="utf-8"))
    assert sum(count for count, _ in checked.values()) == len(documents)


def test_an_index_says_where_documents_of_four_bytes_a_token_begin() -> None:
    stream = BytesIO()
    write_index(stream, np.array([3, 2]), np.dtype(np.int32))
    assert np.frombuffer(stream.getvalue(), np.int64, 2, 34 + 8).tolist() == [0, 12]


def test_token_shards_are_grouped_up_to_a_size() -> None:
    assert list(groups([5, 5, 5, 20, 1], 10)) == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert list(groups([], 10)) == []


def test_the_plain_file_is_what_its_header_says(concat: list[Artifact]) -> None:
    folder = concat[-1].folder
    header = json.loads((folder / "train.json").read_text(encoding="utf-8"))
    rows = np.fromfile(folder / header["files"][0]["name"], header["dtype"]).reshape(-1, header["tokens_a_row"])
    assert len(rows) == header["files"][0]["rows"] == concat[-1].manifest.stats["sequences"]
    np.testing.assert_array_equal(rows[3], Dataset(folder).sequence(3))
    assert (header["eos"], header["seq_length"]) == (concat[-1].manifest.stats["eos_id"], 64)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(2, 7), st.integers(1, 3))
def test_samples_are_those_that_walking_through_the_documents_gives(sizes: list[int], length: int, epochs: int) -> None:
    stream = [(d, t) for d, size in enumerate(sizes * epochs) for t in range(size)]
    index = np.tile(np.arange(len(sizes), dtype=np.int32), epochs)
    found = build_sample_idx(np.array(sizes, np.int32), index, length, epochs, sum(sizes))
    samples = max(0, (len(stream) - 1) // length)
    assert found.tolist() == [list(stream[k * length]) for k in range(samples + 1)]


HELPERS = """
import importlib.util, json, sys, numpy as np
spec = importlib.util.spec_from_file_location("helpers", sys.argv[1])
helpers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helpers)
sizes, index = np.array([5, 1, 30, 7], np.int32), np.array([2, 0, 3, 1, 1, 2, 3, 0], np.int32)
answer = {"samples": helpers.build_sample_idx(sizes, index, 6, 2, 43, True, 1).tolist()}
first, second = np.zeros(50, np.int16), np.zeros(50, np.int64)
helpers.build_blending_indices(first, second, np.array([0.5, 0.3, 0.2]), 3, 50, False)
answer["blend"] = [first.tolist(), second.tolist()]
json.dump(answer, open(sys.argv[2], "w"))
"""


def test_helpers_are_those_that_mindformers_compiles(tmp_path: Path) -> None:
    """Its C++ is compiled here, outside the installation, where there is a compiler."""
    pybind11 = pytest.importorskip("pybind11", reason="pybind11 is not installed, which mindformers' helper needs")
    python_headers = Path(sysconfig.get_paths()["include"])
    if shutil.which("g++") is None or not (python_headers / "Python.h").is_file():
        pytest.skip("no g++ with Python's headers, to compile mindformers' helper with, which ours is compared with")
    folder = Path(importlib.util.find_spec("mindformers").submodule_search_locations[0])  # type: ignore[union-attr, index]
    target = tmp_path / f"helpers{sysconfig.get_config_var('EXT_SUFFIX')}"
    includes = [f"-I{pybind11.get_include()}", f"-I{python_headers}"]
    source = str(folder / "dataset" / "blended_datasets" / "helpers.cpp")
    subprocess.run(["g++", "-O1", "-shared", "-std=c++11", "-fPIC", *includes, source, "-o", str(target)], check=True)
    theirs = in_mindformers(HELPERS, tmp_path, str(target))
    sizes, index = np.array([5, 1, 30, 7], np.int32), np.array([2, 0, 3, 1, 1, 2, 3, 0], np.int32)
    assert build_sample_idx(sizes, index, 6, 2, 43).tolist() == theirs["samples"]
    first, second = np.zeros(50, np.int16), np.zeros(50, np.int64)
    build_blending_indices(first, second, [0.5, 0.3, 0.2], 3, 50, verbose=False)
    assert [first.tolist(), second.tolist()] == theirs["blend"]


def test_an_exhaustive_blend_takes_every_sample_once() -> None:
    first, second = np.zeros(6, np.int16), np.zeros(6, np.int64)
    build_exhaustive_blending_indices(first, second, [4, 2], 2)
    assert sorted(zip(first.tolist(), second.tolist(), strict=True)) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert first.tolist() == [0, 1, 0, 0, 1, 0]
