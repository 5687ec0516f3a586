"""The gates of the smoke training: what must hold before devices are given to the long one.

A gate that fails says what it found and what to change; `likely_cause` weighs them in the order in which one looks for
why a loss does not fall: shuffling, learning rate, numbers that are none, tokenizer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, median_low, quantiles
from typing import TYPE_CHECKING, Any

import psutil

from configs.schema import RunConfig
from configs.sizes import show_size
from tasks.train.metrics import StepMetrics

if TYPE_CHECKING:
    from tasks.train.stages import Training

RISE = 0.3
"""Nats above the loss of knowing nothing: an untrained model lies some hundredths above it."""
CLOSE = 0.05
"""Share of ln(vocabulary) within which a loss shows that nothing was learnt."""
ACCUMULATION_TOLERANCE = 1e-3
WARM_STEPS = 3
"""The first steps compile and fill caches; their times say nothing."""


@dataclass(frozen=True)
class Gate:
    """One gate's verdict: what was found, and what to change where that is too little."""

    name: str
    passed: bool
    found: str
    mend: str


def judge(
    training: "Training",
    ranks: Sequence[Sequence[StepMetrics]],
    probes: Sequence[dict[str, Any]],
    config: RunConfig,
    dataset: dict[str, Any],
) -> list[Gate]:
    """Return every gate's verdict. `ranks`: what each rank measured; `probes`: what it measured of itself."""
    return [
        *_loss_gates(training, config),
        *_step_gates(training.steps, config),
        *_rank_gates(training, ranks, probes, config),
        Gate(
            "mixed data",
            not any("mixed" in alarm or "shuffl" in alarm for alarm in dataset.get("alarms", [])),
            "pack found the sources badly mixed" if dataset.get("alarms") else "the sources are mixed",
            "look at pack's alarms; write pack.shuffle: documents",
        ),
    ]


def likely_cause(gates: Sequence[Gate], training: "Training", vocab_size: int) -> str:
    """Return in a sentence what to look at first."""
    failed = {gate.name for gate in gates if not gate.passed}
    if "data that varies" in failed:
        return "the data: the same text comes again and again; look at the samples of pack, and at what dedup kept"
    if "mixed data" in failed:
        return "the data: it is not shuffled"
    if failed & {"loss falls", "gradient norm", "overflow"}:
        return _cause_of_a_bad_loss(failed, [step.loss for step in training.steps], vocab_size)
    if failed & {"even ranks", "steady steps", "throughput"}:
        return "a device, host or link that is slower than the others"
    if failed & {"equal weights", "every step on every rank"}:
        return "the ranks have parted: a device or link that computes or carries wrongly"
    return "what the first gate above says"


def _cause_of_a_bad_loss(failed: set[str], losses: list[float], vocab_size: int) -> str:
    nothing = math.log(vocab_size)
    last = fmean(losses[-max(1, len(losses) // 10) :])
    if "overflow" not in failed and ("gradient norm" in failed or max(losses[1:]) > losses[0] + RISE):
        return "the learning rate: the loss rose instead of falling; lower training.learning_rate tenfold"
    if "overflow" in failed:
        return "the precision: gradients overflow; lower training.loss_scale or train in bf16"
    if abs(last - nothing) < CLOSE * nothing:
        return (
            f"the tokenizer or the labels: the loss stays at ln(vocabulary) = {nothing:.2f}, so the labels say nothing "
            "about the inputs; look at the samples of pack, then raise training.learning_rate or smoke.steps"
        )
    return "too few steps or too low a learning rate: raise training.learning_rate or smoke.steps"


def robust_slope(losses: Sequence[float]) -> float:
    """Return the change of the loss a step (nats): the median of the slopes between the two halves (after Theil and Sen)."""
    half = len(losses) // 2
    return median((losses[half + place] - losses[place]) / half for place in range(half))


def _loss_gates(training: "Training", config: RunConfig) -> list[Gate]:
    smoke, stats = config.smoke, training.stats()
    first = min(stats["loss_first"], round(training.steps[0].loss, 4))  # it may have leapt in the first steps
    drop = first - stats["loss_last"]
    slope = robust_slope([step.loss for step in training.steps])
    falls = drop >= smoke.min_loss_drop and (slope < 0 or smoke.min_loss_drop <= 0)
    return [
        Gate(
            "loss falls",
            falls,
            f"the loss fell by {drop:.4f}, from {first} at the beginning to {stats['loss_last']} in the last "
            f"tenth of the steps, {slope:+.2g} a step; at least {smoke.min_loss_drop} is asked for",
            "see the likely cause; smoke.min_loss_drop is the limit",
        ),
        Gate(
            "data that varies",
            stats["loss_last"] >= smoke.min_last_loss,
            f"the last tenth's loss is {stats['loss_last']}, at least {smoke.min_last_loss} is expected of text",
            "the same sequences come again and again; look at the samples of pack",
        ),
    ]


def _step_gates(steps: Sequence[StepMetrics], config: RunConfig) -> list[Gate]:
    smoke = config.smoke
    later = steps[min(smoke.overflow_steps_ignored, len(steps) // 2) :]
    overflowed = fmean(step.overflow for step in later)
    norms = [step.gradient_norm for step in steps if step.gradient_norm is not None]
    norm = median(norms) if norms else math.inf
    warm = [step.seconds for step in steps[WARM_STEPS:]]
    spread = quantiles(warm, n=10)[-1] / median(warm)
    rate, expected = median(step.tokens_per_second for step in steps), config.training.tokens_per_second
    wanted = expected * smoke.min_throughput_share * config.training.workers if expected else 0.0
    limit = (config.training.memory or psutil.virtual_memory().total) * smoke.max_memory_share
    largest = max(step.memory for step in steps)
    return [
        Gate(
            "overflow",
            overflowed <= smoke.max_overflow_share,
            f"{overflowed:.0%} of the later steps overflowed, at most {smoke.max_overflow_share:.0%} may",
            "lower training.loss_scale or training.learning_rate, or train in bf16",
        ),
        Gate(
            "gradient norm",
            norm <= smoke.max_gradient_norm,
            f"the median gradient norm is {norm:.3g}, at most {smoke.max_gradient_norm:g} is sane",
            "lower training.learning_rate or model.initializer_range",
        ),
        Gate(
            "memory",
            largest <= limit,
            f"the largest rank held {show_size(largest)} of {show_size(limit)}",
            "see `mindpretrain plan` for layouts that need less",
        ),
        Gate(
            "steady steps",
            spread <= smoke.max_step_time_ratio,
            f"the slowest tenth of the steps took {spread:.2f} times the median, at most {smoke.max_step_time_ratio:g}",
            "look for other work on the hosts, or a slow reader",
        ),
        Gate(
            "throughput",
            rate >= wanted,
            f"{rate:.0f} tokens/s" + (f", at least {wanted:.0f} is expected" if expected else ", nothing is expected"),
            "compare with an earlier run; training.tokens_per_second is what a device is expected to do",
        ),
    ]


def _rank_gates(
    training: "Training",
    ranks: Sequence[Sequence[StepMetrics]],
    probes: Sequence[dict[str, Any]],
    config: RunConfig,
) -> list[Gate]:
    steps = training.result.steps
    short = [rank for rank, found in enumerate(ranks) if not found or found[-1].step != steps]
    gates = [
        Gate(
            "every step on every rank",
            len(ranks) == config.training.workers and not short,
            f"{len(ranks)} of {config.training.workers} ranks wrote steps"
            + (f"; ranks {short} lack some" if short else ""),
            "look at the logs of those ranks",
        )
    ]
    if not probes:
        return gates
    digests = {probe["weights"] for probe in probes}
    seconds = [probe["forward_seconds"] for probe in probes]
    slowest = max(range(len(seconds)), key=seconds.__getitem__)
    slowness = seconds[slowest] / median_low(seconds)
    difference = max(probe["accumulation_difference"] for probe in probes)
    return [
        *gates,
        Gate(
            "equal weights",
            len(digests) == 1,
            f"{len(digests)} different sets of weights on {len(probes)} ranks",
            "ranks that should hold one network have parted: check the devices and links",
        ),
        Gate(
            "even ranks",
            slowness <= config.smoke.max_rank_slowness,
            f"rank {slowest} takes {slowness:.2f} times as long as its peers for a forward pass of its own, at most "
            f"{config.smoke.max_rank_slowness:g}",
            f"check the device and host of rank {slowest}: all wait for it in every step",
        ),
        Gate(
            "accumulation",
            difference <= ACCUMULATION_TOLERANCE or config.training.precision == "fp16",
            f"the loss of a batch at once and of its sequences differ by {difference:.2g}",
            "the loss is not a mean over sequences: gradient accumulation would train another model",
        ),
    ]
