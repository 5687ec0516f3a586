"""What a worker measures beside its steps: a look at a real batch, the loss on held-out sequences, the rank by itself, and a
text that the model continues. Imported in the training process alone.
"""

import json
import resource
import time
from pathlib import Path
from statistics import median
from typing import Any

import mindspore as ms
import numpy as np
import xxhash
from mindspore import nn
from mindspore.dataset import MindDataset

from tasks.files import write_json
from tasks.train.job import EVALUATIONS, PROBES

LOOKS = 10
"""How often a smoke run times each rank by itself."""
MAX_UNSHIFTED_SHARE = 0.1
"""Labels that are not the next input, padding aside: none, but for a loader that masks some."""
SAMPLES = "samples.json"


class TrainingStopped(Exception):  # noqa: N818
    """The training cannot go on; the message says why and what to change."""


class _Forward(nn.Cell):  # type: ignore[misc]
    """The network's loss without gradients, and so without talking to other ranks."""

    def __init__(self, network: Any) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, *inputs: Any) -> Any:
        return self.network(*inputs)


def check_batch(batch: list[Any], job: dict[str, Any]) -> None:
    """Compare a batch, as the loader gives it, with the configuration.

    Raises:
        TrainingStopped: its shapes, ids or labels are not what the network will take them for.
    """
    found = dict(zip(job["columns"], batch, strict=False))
    # Where MindSpore cuts the batch for the devices, each may be given all of it.
    rows, length = job["rows"] or len(batch[0]), job["seq_length"]
    sliced = "labels" in found
    expected = {"input_ids": (rows, length if sliced else length + 1)}
    expected |= {name: (rows, length) for name in ("labels", "loss_mask", "position_ids") if name in found}
    if len(batch) != len(job["columns"]):
        raise TrainingStopped(f"the dataset gives {len(batch)} columns, expected {job['columns']}; run pack again")
    for name, shape in expected.items():
        if tuple(found[name].shape) != shape:
            raise TrainingStopped(
                f"column {name} of the dataset has the shape {tuple(found[name].shape)}, expected {shape} (sequences, "
                "tokens) from training.batch_size and pack.seq_length; it was packed with other settings: run pack again"
            )
    largest = max(int(found[name].max()) for name in ("input_ids", "labels") if name in found)
    if largest >= job["vocab_size"]:
        raise TrainingStopped(
            f"the dataset has the token id {largest}, but the model's vocabulary is {job['vocab_size']} (D3): it was made "
            "with another tokenizer; run pack again"
        )
    if sliced:
        inputs, labels = found["input_ids"][:, 1:], found["labels"][:, :-1]
        counted = found["loss_mask"][:, :-1] > 0 if "loss_mask" in found else np.ones_like(labels, bool)
        wrong = float(np.mean((inputs != labels)[counted])) if counted.any() else 0.0
        if wrong > MAX_UNSHIFTED_SHARE:
            raise TrainingStopped(
                f"{wrong:.0%} of the labels are not the token that follows their input: they were made with another "
                "tokenizer, or shuffled apart from their inputs; run pack again"
            )


class Evaluation:
    """Writes the loss on this rank's share of held-out sequences, a line each time."""

    def __init__(self, network: Any, job: dict[str, Any], rank: int, folder: Path) -> None:
        self._forward = _Forward(network)
        self._forward.set_train(True)  # the network gives its loss only so; nothing in it is random
        self._job, self._rank, self._file = job, rank, folder / EVALUATIONS

    def run(self, step: int, files: list[str]) -> None:
        """Evaluate the network as it is after `step` on the first sequences of MindRecord files."""
        job = self._job
        rows = max(1, job["evaluation_sequences"] // job["workers"])
        dataset = MindDataset(
            files, columns_list=job["columns"], shuffle=False, num_parallel_workers=1,
            num_shards=job["workers"], shard_id=self._rank,
        )  # fmt: skip
        total, tokens = 0.0, 0
        for batch in dataset.batch(1).take(rows).create_tuple_iterator(num_epochs=1):
            total += float(self._forward(*batch).asnumpy().mean()) * job["seq_length"]
            tokens += job["seq_length"]
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps({'step': step, 'loss_sum': total, 'tokens': tokens})}\n")


class RankProbe:
    """Times this rank's own forward pass, and compares the loss of a batch at once with that of its sequences."""

    def __init__(self, network: Any, batch: list[Any], job: dict[str, Any], folder: Path) -> None:
        self._forward = _Forward(network)
        self._forward.set_train(True)
        micro = [column[: job["batch_size"]] for column in batch]
        self._batch = [ms.Tensor(column) for column in micro]
        self._folder = folder
        self._seconds: list[float] = []
        at_once = self._loss()
        one_by_one = [
            float(self._forward(*(ms.Tensor(column[row : row + 1]) for column in micro)).asnumpy().mean())
            for row in range(job["batch_size"])
        ]
        self._difference = abs(at_once - float(np.mean(one_by_one)))

    def look(self) -> None:
        began = time.perf_counter()
        self._loss()
        self._seconds.append(time.perf_counter() - began)

    def write(self, network: Any) -> None:
        digest = xxhash.xxh3_64()
        for parameter in network.get_parameters():
            digest.update(np.ascontiguousarray(parameter.asnumpy()).tobytes())
        measured = {
            "forward_seconds": median(self._seconds),
            "accumulation_difference": self._difference,
            "weights": digest.hexdigest(),
        }
        write_json(self._folder / PROBES, measured)

    def _loss(self) -> float:
        return float(self._forward(*self._batch).asnumpy().mean())


def continue_prompts(network: Any, job: dict[str, Any], folder: Path) -> None:
    """Continue each prompt by its likeliest tokens (greedy), and write all ids."""
    model = network
    while not hasattr(model, "lm_head"):
        model = model.network
    forward = _Forward(model)
    forward.set_train(False)
    texts = []
    for prompt in job["sample_prompts"]:
        ids = list(prompt)
        while len(ids) < min(job["seq_length"], len(prompt) + job["sample_tokens"]):
            window = np.full((1, job["seq_length"]), job["eos_id"], np.int32)
            window[0, : len(ids)] = ids
            logits = forward(ms.Tensor(window))[0].asnumpy().reshape(job["seq_length"], -1)
            ids.append(int(logits[len(ids) - 1].argmax()))
            if ids[-1] == job["eos_id"]:
                break
        texts.append(ids)
    write_json(folder / SAMPLES, texts)
    forward.set_train(True)


def digest(ids: Any) -> str:
    """Return a name of the content of token ids."""
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(ids.asnumpy()).tobytes())


def peak_memory(device: str) -> int:
    """Return the most bytes that this process held, or, on Ascend, its device."""
    if device == "CPU":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(ms.runtime.max_memory_allocated())
