"""Which layouts a training can take on so many devices, in the order in which one tries them: data parallel, then optimizer
sharding, then tensor, then pipeline parallelism, each only where the one before does not fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from configs.sizes import show_size
from configs.training import ModelConfig, TrainingConfig
from tasks.train.memory import Memory, device_memory, with_layout
from tasks.train.rules.view import DEVICES_A_SERVER

TENSOR, PIPELINE = (1, 2, 4, 8), (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Layout:
    """A layout that was looked at. `taken`: the first that fits; `because`: why it was taken or refused."""

    name: str
    training: TrainingConfig
    memory: Memory
    taken: bool
    because: str


def try_layouts(
    model: ModelConfig, training: TrainingConfig, devices: int, seq_length: int, vocab: int
) -> list[Layout]:
    """Return the layouts up to the first that fits, that one last; all of them where none does."""
    tried: list[Layout] = []
    for sharded, tensor, pipeline in _order(devices):
        wanted = with_layout(training, devices, sharded, tensor, pipeline)
        memory = device_memory(model, wanted, seq_length, vocab)
        reason = _impossible(model, devices, tensor, pipeline)
        fits = reason is None and memory.fits is not False
        tried.append(Layout(layout_name(wanted), wanted, memory, fits, reason or _verdict(memory)))
        if fits:
            break
    return tried


def _order(devices: int) -> Iterator[tuple[bool, int, int]]:
    yield False, 1, 1
    for pipeline in PIPELINE:
        for tensor in TENSOR:
            if tensor * pipeline <= devices:
                yield devices > tensor * pipeline, tensor, pipeline


def layout_name(training: TrainingConfig) -> str:
    parallel = training.parallel
    sharded = ", optimizer sharding" if parallel.optimizer_sharding else ""
    return f"data {training.data_parallel} x tensor {parallel.tensor} x pipeline {parallel.pipeline}{sharded}"


def _impossible(model: ModelConfig, devices: int, tensor: int, pipeline: int) -> str | None:
    if devices % (tensor * pipeline):
        return f"refused (P1): {devices} devices are no multiple of {tensor * pipeline}"
    for rule, name, size in (
        ("P3", "num_heads", model.num_heads),
        ("P4", "num_kv_heads", model.kv_heads),
        ("P5", "intermediate_size", model.intermediate_size),
        ("P5", "hidden_size", model.hidden_size),
    ):
        if size % tensor:
            return f"refused ({rule}): {name} {size} cannot be divided by {tensor}"
    if model.num_layers < pipeline:
        return f"refused (P6): {model.num_layers} layers on {pipeline} stages"
    if tensor > DEVICES_A_SERVER:
        return "refused (P11): tensor parallelism would leave the server"
    return None


def _verdict(memory: Memory) -> str:
    if memory.usable is None:
        return "taken: no device memory was given to hold it to"
    size, limit = show_size(memory.total), show_size(memory.usable)
    if memory.fits:
        return f"taken: {size} of {limit} usable"
    return f"refused: {size}, {limit} are usable; the most are {memory.largest_term}"
