"""Says in lines what a training needs and how long it takes: memory term by term, batch, steps, time, and the layouts that
were looked at, each with why it was taken or refused.
"""

from collections.abc import Iterator

from configs.errors import ConfigError
from configs.schema import RunConfig
from configs.sizes import parse_count, parse_size, show_count, show_size, show_time
from configs.training import TrainingConfig
from tasks.train.job import TrainingJob
from tasks.train.layouts import layout_name, try_layouts
from tasks.train.memory import count_parameters, device_memory, flops_a_token, states_a_parameter
from tasks.train.planned import planned_job

GIB = 2**30


def plan_lines(
    config: RunConfig,
    devices: int | None,
    memory: str | None,
    tokens: str | None,
    throughput: float | None,
) -> Iterator[str]:
    """Yield the plan's lines.

    Raises:
        ConfigError: a size or count that is none, or a layout that cannot be divided over the devices.
    """
    wanted = _number(tokens, "--tokens") if tokens else None
    planned = planned_job(_on(config, devices, memory), wanted)
    job = planned.job
    yield from (f"note: {note}" for note in planned.notes)
    yield from _model_lines(job)
    yield ""
    yield from _memory_lines(job)
    yield ""
    yield from _time_lines(job, throughput, planned.tokens_known)
    yield ""
    yield from _layout_lines(job)


def memory_problem(job: TrainingJob) -> str | None:
    """Return why the job's layout does not fit its devices, if it does not."""
    memory = device_memory(job.model, job.training, job.seq_length, job.vocab_size)
    if memory.fits is not False or memory.usable is None:
        return None
    fit = [layout for layout in try_layouts(job) if layout.taken]
    mend = f"{fit[0].name} fits, with {show_size(fit[0].memory.total)}" if fit else "no layout on these devices fits"
    return (
        f"error memory: training.device_memory: {show_size(memory.total)} are needed of each device "
        f"({memory.scheme}), {show_size(memory.usable)} are usable; {mend}"
    )


def _on(config: RunConfig, devices: int | None, memory: str | None) -> RunConfig:
    """Return the configuration on other devices; the global batch in tokens stays, where it can."""
    if memory is not None:
        _number(memory, "--device-memory", size=True)
    changes = {
        **({"workers": devices, "hosts": []} if devices is not None else {}),
        **({"device_memory": memory} if memory is not None else {}),
    }
    if not changes:
        return config
    given = config.training.model_dump()
    parallel = given["parallel"] | ({"data": None} if devices is not None else {})
    try:
        training = TrainingConfig.model_validate(given | changes | {"parallel": parallel, "device": "Ascend"})
    except ValueError as error:
        raise ConfigError("plan", [str(error).splitlines()[2].strip()]) from None
    at_once = training.data_parallel * training.batch_size * config.pack.seq_length
    if (batch := training.global_batch_tokens) is not None:
        training = training.model_copy(update={"gradient_accumulation": max(1, round(batch / at_once))})
    return config.model_copy(update={"training": training})


def _model_lines(job: TrainingJob) -> Iterator[str]:
    counted = count_parameters(job.model, job.vocab_size)
    yield f"parameters         {counted.total / 1e9:.3f} B: {counted.layers} layers x {counted.layer / 1e6:.1f} M,"
    yield f"                   embedding {counted.embedding / 1e6:.1f} M, output {counted.head / 1e6:.1f} M"
    for width, what in states_a_parameter():
        size = counted.total * width
        yield f"  {width} bytes each    {size / 1e9:.1f} GB ({size / GIB:.1f} GiB): {what}"


def _memory_lines(job: TrainingJob) -> Iterator[str]:
    training = job.training
    memory = device_memory(job.model, training, job.seq_length, job.vocab_size)
    split = f"context {training.parallel.context}, recompute {training.recompute}"
    yield f"each device        {layout_name(training)}, {split}; {memory.scheme}"
    yield from (f"  {name:<40}{size / 1e9:8.2f} GB" for name, size in memory.terms())
    if memory.usable is not None:
        verdict = "fits" if memory.fits else "does not fit"
        yield f"  usable of {show_size(training.memory or 0):<30}{memory.usable / 1e9:8.2f} GB: {verdict}"


def _time_lines(job: TrainingJob, throughput: float | None, tokens_known: bool) -> Iterator[str]:
    training, a_step = job.training, job.tokens_a_step
    yield (
        f"global batch       {job.global_batch} sequences = {show_count(a_step)} tokens: {training.data_parallel} copies x "
        f"batch_size {training.batch_size} x accumulation {training.gradient_accumulation}"
    )
    flops = flops_a_token(job.model, job.seq_length, job.vocab_size)
    yield f"FLOPs a token      {flops / 1e9:.1f} G (6 N + 12 L H Q T, all parameters counted)"
    if not tokens_known:
        yield "steps, time        unknown until the tokens are counted; give --tokens"
        return
    total = job.steps * a_step
    yield f"steps              {job.steps:,} for {show_count(total)} tokens, {flops * total:.3g} FLOPs"
    rate = throughput or training.tokens_per_second
    if rate is None:
        yield "time               give --throughput (tokens a second of a device)"
        return
    seconds = total / (rate * training.workers)
    teraflops = rate * flops / 1e12
    yield f"time               {show_time(seconds)} at {rate:,.0f} tokens/s a device ({teraflops:.0f} TFLOPS a device)"


def _layout_lines(job: TrainingJob) -> Iterator[str]:
    yield f"layouts on {job.training.workers} devices, in the order in which one tries them"
    for layout in try_layouts(job):
        yield f"  {layout.name:<62} {layout.because}"


def _number(text: str, option: str, size: bool = False) -> int:
    try:
        return parse_size(text) if size else parse_count(text)
    except ValueError as error:
        raise ConfigError(option, [str(error)]) from None
