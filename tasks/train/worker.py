"""One training process: `worker.py JOB_FILE`. Runs mindformers' own Trainer from the YAML beside the job file.

What it adds to mindformers, through mindformers' registry, and why:
- `StepRecorder`: a line a step, checkpoints, evaluation, and what smoke measures of each rank. mindformers has two
  checkpoint formats; on CPU the new one cannot save under two workers and the old one cannot resume under one, neither
  keeps the loss scale's window, and both delete before they write. Ours is one for every case: weights and optimizer as
  safetensors, under the final name only when whole.
- `megatron_helpers` in place of a C++ module that the Megatron loader would compile into the installation.
- `PortableTrainOneStep`: the overflow test of `MFTrainOneStepCell` asks an operator that only Ascend has, and mindformers
  accumulates gradients in semi_auto alone, which CPU lacks.
"""

import json
import math
import os
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tasks.files import write_json
from tasks.train import mindformers_yaml
from tasks.train.checkpoints import CHECKPOINT_STATE, CHECKPOINTS, OPTIMIZER, WEIGHTS, describe
from tasks.train.job import FINISHED, MEETINGS, METRICS, PROCESS
from tasks.train.metrics import StepMetrics

JOB = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
FOLDER = Path(sys.argv[1]).parent
RANK = int(os.environ.get("RANK_ID", "0")) if JOB["workers"] > 1 else 0
OWN_FOLDER = FOLDER / f"rank_{RANK}"
OWN_FOLDER.mkdir(parents=True, exist_ok=True)
write_json(OWN_FOLDER / PROCESS, {"pid": os.getpid()})
os.chdir(OWN_FOLDER)  # mindformers writes ./output while it is imported

if JOB["dataset"] == "megatron":
    from tasks.train import megatron_helpers

    sys.modules["mindformers.dataset.blended_datasets.helpers"] = megatron_helpers

import mindspore as ms  # noqa: E402
from mindformers import MindFormerConfig, Trainer, build_context, version_control  # noqa: E402
from mindformers.dataset.dataloader import blended_megatron_dataloader  # noqa: E402
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister  # noqa: E402
from mindformers.wrapper import MFTrainOneStepCell  # noqa: E402
from mindspore import ops  # noqa: E402

from tasks.train import probes  # noqa: E402
from tasks.train.probes import TrainingStopped  # noqa: E402

# With fp16 each overflow halves the loss scale, which may take a while; elsewhere nothing will mend the next step.
OVERFLOWS_IN_A_ROW = 50 if JOB["precision"] == "fp16" else 5
ACCUMULATION, MICRO_BATCH = JOB["accumulation"], JOB["batch_size"]


class Evaluated(Exception):  # noqa: N818
    """There was nothing to train, and what was to be evaluated is."""


@MindFormerRegister.register(MindFormerModuleType.WRAPPER)
class PortableTrainOneStep(MFTrainOneStepCell):  # type: ignore[misc]
    """A training step whose overflow test works on every device, and which takes its sequences in micro batches."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sum_over_workers = ops.AllReduce() if JOB["workers"] > 1 else ops.Identity()
        self.micro_batches = ms.Tensor([ACCUMULATION], ms.float32)
        self.add = ops.Add()

    def start_overflow_check(self, pre_cond: Any, compute_input: Any) -> Any:
        return pre_cond, compute_input

    def get_overflow_status(self, status: Any, compute_output: Any) -> Any:
        total = 0.0
        for gradient in compute_output:
            total = total + ops.cast(ops.logical_not(ops.isfinite(gradient)), ms.float32).sum()
        return self.sum_over_workers(total) > 0

    def grads_for_legacy(self, scaling_sens: Any, *inputs: Any) -> Any:
        """Return loss (mean over micro batches), summed gradients, and by what to divide them."""
        total, summed = 0.0, None
        for number in range(ACCUMULATION):
            part: tuple[Any, ...] = ()
            for column in inputs:
                part = (*part, column[number * MICRO_BATCH : (number + 1) * MICRO_BATCH])
            loss = self.network(*part)
            sens = ops.ones_like(loss) * ops.cast(scaling_sens, loss.dtype)
            gradients = self.grad(self.network, self.weights)(*part, sens)
            total = total + loss
            summed = gradients if summed is None else self.hyper_map(self.add, summed, gradients)
        return total / ACCUMULATION, summed, self.micro_batches


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class StepRecorder(ms.Callback):  # type: ignore[misc]
    """Restores a checkpoint at the beginning, writes a line a step, saves and evaluates every so many steps, ends after
    the last."""

    def __init__(self) -> None:
        super().__init__()
        self._step = JOB["start"]
        self._overflows = 0
        self._began = self._ended = time.perf_counter()
        self._metrics = (OWN_FOLDER / METRICS).open("a", encoding="utf-8")
        self._evaluation: probes.Evaluation | None = None
        self._probe: probes.RankProbe | None = None

    def on_train_begin(self, run_context: Any) -> None:
        arguments = run_context.original_args()
        # All passes are asked for, as by the training: the dataset may begin in a later one.
        first = next(arguments.train_dataset.create_tuple_iterator(num_epochs=JOB["epochs"], output_numpy=True))
        probes.check_batch(first, JOB)
        if JOB["resume_from"]:
            restore(arguments.train_network, Path(JOB["resume_from"]))
        elif JOB["init_weights"]:
            load_weights(arguments.train_network.network, Path(JOB["init_weights"]))
        if (JOB["held_out"] or JOB["evaluate_only"]) and JOB["evaluation_sequences"]:
            self._evaluation = probes.Evaluation(arguments.train_network.network, JOB, RANK, OWN_FOLDER)
        if self._evaluation and JOB["evaluate_only"]:
            for number, files in enumerate(JOB["evaluate_only"]):
                self._evaluation.run(number, files)
            write_json(OWN_FOLDER / FINISHED, {"step": self._step})
            raise Evaluated
        if JOB["probe"] and JOB["device"] == "CPU":
            self._probe = probes.RankProbe(arguments.train_network.network, first, JOB, OWN_FOLDER)
        self._ended = time.perf_counter()

    def on_train_step_begin(self, run_context: Any) -> None:
        self._began = time.perf_counter()

    def on_train_step_end(self, run_context: Any) -> None:
        arguments = run_context.original_args()
        self._step += 1
        measured = self._measure(arguments.get("train_dataset_element"), arguments.net_outputs)
        self._metrics.write(f"{json.dumps(asdict(measured))}\n")
        self._metrics.flush()
        self._stop_when_hopeless(measured)
        last = self._step >= JOB["steps"]
        every = JOB["checkpoint_every"]
        if self._probe and self._step % max(1, JOB["steps"] // probes.LOOKS) == 0:
            self._probe.look()
        if RANK == 0 and every and (last or self._step % every == 0):
            save(arguments.train_network, self._step)
        if self._evaluation and (last or (JOB["evaluate_every"] and self._step % JOB["evaluate_every"] == 0)):
            self._evaluation.run(self._step, JOB["held_out"])
        if last:
            self._finish(arguments.train_network.network)
            run_context.request_stop()

    def _finish(self, network: Any) -> None:
        if self._probe:
            self._probe.write(network)
        if JOB["sample_prompts"] and RANK == 0 and JOB["device"] == "CPU":
            probes.continue_prompts(network, JOB, OWN_FOLDER)
        write_json(OWN_FOLDER / FINISHED, {"step": self._step})

    def _measure(self, batch: Any, outputs: Any) -> StepMetrics:
        waited = self._began - self._ended
        self._ended = time.perf_counter()  # what comes now, such as saving, is waiting time of the next step
        seconds = self._ended - self._began
        loss, overflow, scale, learning_rate, norm = outputs[:5]
        overflowed = bool(overflow.asnumpy().any())
        return StepMetrics(
            step=self._step,
            tokens=self._step * JOB["tokens_a_step"],
            loss=float(loss.asnumpy().mean()),
            learning_rate=float(learning_rate.asnumpy().mean()),
            gradient_norm=None if overflowed else float(norm.asnumpy().mean()),
            loss_scale=float(scale.asnumpy().mean()) if JOB["precision"] == "fp16" else None,
            overflow=overflowed,
            seconds=round(seconds, 6),
            waited=round(waited, 6),
            tokens_per_second=round(JOB["tokens_a_step"] / (seconds + waited), 1),
            memory=probes.peak_memory(JOB["device"]),
            batch=probes.digest(batch[0]) if batch else None,
        )

    def _stop_when_hopeless(self, measured: StepMetrics) -> None:
        self._overflows = self._overflows + 1 if measured.overflow else 0
        if not math.isfinite(measured.loss):
            raise TrainingStopped(
                f"the loss became {measured.loss} at step {measured.step}; lower training.learning_rate, lengthen "
                "training.warmup_share, and look at the sequences of this step"
            )
        if self._overflows >= OVERFLOWS_IN_A_ROW:
            raise TrainingStopped(
                f"the gradients were not finite in {self._overflows} steps in a row up to step {measured.step}; lower "
                "training.learning_rate, lengthen training.warmup_share, or train in a wider precision"
            )


def save(train_network: Any, step: int) -> None:
    """Write a checkpoint under a temporary name, rename it when it is whole, then drop the oldest beyond the limit."""
    final = FOLDER / CHECKPOINTS / f"step-{step:08d}"
    draft = final.with_name(f".{final.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    weights = {parameter.name for parameter in train_network.network.get_parameters()}
    parts: dict[str, list[dict[str, Any]]] = {WEIGHTS: [], OPTIMIZER: []}
    for name, parameter in train_network.parameters_dict().items():
        parts[WEIGHTS if name in weights else OPTIMIZER].append({"name": name, "data": parameter})
    for name, parameters in parts.items():
        ms.save_checkpoint(parameters, str(draft / name), format="safetensors")
        (draft / name).chmod(0o644)
        _sync(draft / name)
    write_json(draft / CHECKPOINT_STATE, {"step": step, "files": describe(draft, list(parts))})
    draft.rename(final)
    _sync(final.parent)
    for old in sorted(final.parent.glob("step-*"))[: -JOB["keep_checkpoints"]]:
        doomed = old.with_name(f".{old.name}.draft")  # half deleted it must not count as whole
        old.rename(doomed)
        shutil.rmtree(doomed)


def restore(train_network: Any, checkpoint: Path) -> None:
    """Load weights, optimizer and loss scale.

    Raises:
        TrainingStopped: the checkpoint lacks a parameter, has one that the network lacks, or one of another shape.
    """
    loaded: dict[str, Any] = {}
    for name in (WEIGHTS, OPTIMIZER):
        loaded.update(ms.load_checkpoint(str(checkpoint / name), format="safetensors"))
    _load(train_network, loaded, checkpoint)


def load_weights(network: Any, file: Path) -> None:
    """Begin with the weights of a safetensors file.

    Raises:
        TrainingStopped: they are not those of this network.
    """
    _load(network, ms.load_checkpoint(str(file), format="safetensors"), file)


def _load(network: Any, loaded: dict[str, Any], place: Path) -> None:
    own = network.parameters_dict()
    missing, unknown = sorted(own.keys() - loaded.keys()), sorted(loaded.keys() - own.keys())
    if missing or unknown:
        raise TrainingStopped(
            f"{place} does not fit the model: it lacks {missing[:3]} and has {unknown[:3]} beside; give the model "
            "section the sizes of that checkpoint, or name another one"
        )
    for name, parameter in own.items():
        if tuple(loaded[name].shape) != tuple(parameter.shape):
            raise TrainingStopped(
                f"{place} does not fit the model: {name} has the shape {tuple(loaded[name].shape)}, expected "
                f"{tuple(parameter.shape)}; give the model section the sizes of that checkpoint, or name another one"
            )
    ms.load_param_into_net(network, loaded, strict_load=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Meeting:
    """A barrier by files, since CPU has no kernel for one: each worker leaves its mark and waits for those of the others."""

    def __init__(self) -> None:
        self._number = 0

    def __call__(self) -> None:
        self._number += 1
        marks = [FOLDER / MEETINGS / f"{self._number}-{rank}" for rank in range(JOB["workers"])]
        marks[RANK].touch()
        while not all(mark.exists() for mark in marks):
            time.sleep(0.05)


def main() -> None:
    if JOB["dataset"] == "megatron":
        blended_megatron_dataloader.compile_helpers = lambda: None  # they are there, without a compiler
        if JOB["device"] == "CPU":
            version_control.barrier = Meeting()
    config = MindFormerConfig(str(FOLDER / mindformers_yaml.FILE))
    build_context(config)
    with suppress(Evaluated):
        Trainer(config).train()


if __name__ == "__main__":
    main()
