"""Which layouts a training can take on so many devices, in the order in which one tries them: data parallel, then optimizer
sharding, then tensor, then pipeline parallelism, each only where the one before does not fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from configs.sizes import show_size
from configs.training import ModelConfig, TrainingConfig
from tasks.train.job import TrainingJob
from tasks.train.memory import Memory, device_memory
from tasks.train.mindformers_yaml import mindformers_config
from tasks.train.rules import layout
from tasks.train.rules.view import View

TENSOR, PIPELINE = (1, 2, 4, 8), (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Layout:
    """A layout that was looked at. `taken`: the first that fits; `because`: why it was taken or refused."""

    name: str
    training: TrainingConfig
    memory: Memory
    taken: bool
    because: str


def try_layouts(job: TrainingJob) -> list[Layout]:
    """Return the layouts of a job up to the first that fits, that one last; all of them where none does."""
    tried: list[Layout] = []
    for sharded, tensor, pipeline in _order(job.training.workers):
        wanted = with_layout(job.training, job.model, sharded, tensor, pipeline)
        memory = device_memory(job.model, wanted, job.seq_length, job.vocab_size)
        reason = _impossible(replace(job, training=wanted, sequences=job.steps * wanted.global_batch))
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


def with_layout(
    training: TrainingConfig, model: ModelConfig, sharded: bool, tensor: int, pipeline: int
) -> TrainingConfig:
    """Return the training on another layout, with as many micro batches as the pipeline needs, its layers spread evenly."""
    parallel = training.parallel.model_copy(
        update={
            "data": None,
            "tensor": tensor,
            "pipeline": pipeline,
            "optimizer_sharding": sharded,
            "sequence": tensor > 1 and training.parallel.sequence,
            "layer_offset": layout.even_offset(model.num_layers, pipeline),
        }
    )
    micro = max(training.gradient_accumulation, pipeline)
    return training.model_copy(update={"parallel": parallel, "gradient_accumulation": micro})


def layout_name(training: TrainingConfig) -> str:
    parallel = training.parallel
    sharded = ", optimizer sharding" if parallel.optimizer_sharding else ""
    uneven = f", layer_offset {parallel.layer_offset}" if parallel.layer_offset else ""
    return f"data {training.data_parallel} x tensor {parallel.tensor} x pipeline {parallel.pipeline}{sharded}{uneven}"


def _impossible(job: TrainingJob) -> str | None:
    """Return the first rule that a job's layout breaks."""
    view = View(mindformers_config(job, 0), job.training.workers, servers=1)  # how many is only warned of (P11)
    broken = (
        finding
        for rule in layout.RULES
        if rule.name.startswith("P") and rule.severity == "error"
        for finding in rule.findings(view)
    )
    first = next(broken, None)
    return None if first is None else f"refused ({first.rule}): {first.found}"


def _verdict(memory: Memory) -> str:
    if memory.usable is None:
        return "taken: no device memory was given to hold it to"
    size, limit = show_size(memory.total), show_size(memory.usable)
    if memory.fits:
        return f"taken: {size} of {limit} usable"
    return f"refused: {size}, {limit} are usable; the most are {memory.largest_term}"
