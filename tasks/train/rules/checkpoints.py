"""Callbacks, checkpoints and resuming (K)."""

from collections.abc import Iterator
from pathlib import Path

from tasks.train.rules.finding import Problem, Rule
from tasks.train.rules.view import View, whole

OWN_RECORDER = "StepRecorder"


def k1(v: View) -> Iterator[Problem]:
    monitor = v.callback("MFLossMonitor")
    if v.callback(OWN_RECORDER) is None and not (monitor or {}).get("check_for_nan_in_loss_and_grad"):
        yield ("callbacks.MFLossMonitor.check_for_nan_in_loss_and_grad", "False", "write True")


def k2(v: View) -> Iterator[Problem]:
    monitor = v.callback("CheckpointMonitor")
    if monitor is None:
        return
    key = "callbacks.CheckpointMonitor"
    if v.semi_auto and monitor.get("integrated_save", True):
        yield (f"{key}.integrated_save", "True in semi_auto", "write False")
    if monitor.get("save_checkpoint_steps") and monitor.get("save_checkpoint_seconds"):
        yield (f"{key}.save_checkpoint_seconds", "given beside save_checkpoint_steps", "leave one of them out")
    if monitor.get("keep_checkpoint_max") and monitor.get("keep_checkpoint_per_n_minutes"):
        yield (f"{key}.keep_checkpoint_per_n_minutes", "given beside keep_checkpoint_max", "leave one of them out")
    prefix = str(monitor.get("prefix", "CKP"))
    if "/" in prefix or "rank" in prefix or "-" in prefix:
        yield (f"{key}.prefix", f"{prefix!r}", "use letters, digits and _ alone, without the word rank")
    if monitor.get("remove_redundancy") and monitor.get("checkpoint_format", "ckpt") != "safetensors":
        yield (f"{key}.remove_redundancy", "with checkpoint_format ckpt", "write checkpoint_format: safetensors")


def k2_values(v: View) -> Iterator[Problem]:
    monitor = v.callback("CheckpointMonitor")
    if monitor is None:
        if v.callback(OWN_RECORDER) is None:
            yield ("callbacks", "no CheckpointMonitor: nothing is saved", "add one")
        return
    if whole(monitor.get("save_checkpoint_steps"), 1) == 1 and not monitor.get("save_checkpoint_seconds"):
        yield ("callbacks.CheckpointMonitor.save_checkpoint_steps", "1: every step is saved", "write 500")
    if whole(monitor.get("keep_checkpoint_max"), 5) < 2:
        yield (
            "callbacks.CheckpointMonitor.keep_checkpoint_max",
            "1: the oldest is deleted before the next is whole",
            "write 3",
        )


def k3(v: View) -> Iterator[Problem]:
    monitor, size = v.callback("CheckpointMonitor"), whole(v.section("runner_config").get("sink_size"), 1)
    every = whole((monitor or {}).get("save_checkpoint_steps"), 0)
    if v.sink and size > 1 and every % size:
        yield (
            "callbacks.CheckpointMonitor.save_checkpoint_steps",
            f"{every} with sink_size {size}",
            "choose a multiple",
        )


def k4(v: View) -> Iterator[Problem]:
    place, resume = v.content.get("load_checkpoint"), v.content.get("resume_training")
    if not isinstance(place, str | None):
        yield (
            "load_checkpoint",
            f"{place!r} is no path",
            "name the checkpoint's folder, and write resume_training: True",
        )
        return
    if isinstance(resume, str):
        yield ("resume_training", f"{resume!r} is text", "write True")
    if resume and not place:
        yield ("resume_training", "True without load_checkpoint", "name the checkpoint's folder")
    if place and not Path(place).exists():
        yield ("load_checkpoint", f"{place} is not there", "name a folder with a checkpoint")
    elif place and Path(place).is_dir() and not _has_weights(Path(place)):
        yield ("load_checkpoint", f"{place} has no checkpoint in it", "name a folder with a checkpoint")


def k5(v: View) -> Iterator[Problem]:
    if v.content.get("resume_training") and "checkpoint_network" in str(v.content.get("load_checkpoint") or ""):
        yield ("load_checkpoint", "weights alone", "name the folder `checkpoint`, which has the optimizer too")


def k6(v: View) -> Iterator[Problem]:
    if v.content.get("auto_trans_ckpt") and not v.content.get("use_parallel"):
        yield ("auto_trans_ckpt", "True on one device", "write False")


def k7(v: View) -> Iterator[Problem]:
    if v.content.get("use_legacy_format", True) is False and v.content.get("auto_trans_ckpt"):
        yield ("auto_trans_ckpt", "True in the new format, which converts while it loads", "write False")


def k8(v: View) -> Iterator[Problem]:
    if v.content.get("profile"):
        yield ("profile", "True", "write False for a long training")


def k9(v: View) -> Iterator[Problem]:
    skip = v.section("runner_wrapper").get("use_skip_data_by_global_norm")
    if skip and v.section("monitor_config").get("check_for_global_norm"):
        yield ("monitor_config.check_for_global_norm", "beside use_skip_data_by_global_norm", "leave one of them out")


def k10(v: View) -> Iterator[Problem]:
    if v.content.get("only_save_strategy"):
        yield ("only_save_strategy", "True", "write False")


def k11(v: View) -> Iterator[Problem]:
    if "checkpoint" in v.content and "callbacks" not in v.content:
        yield (
            "checkpoint",
            "a section of mindformers 2",
            "write load_checkpoint and CheckpointMonitor, or use version 2",
        )


def _has_weights(folder: Path) -> bool:
    return any(folder.rglob("*.safetensors")) or any(folder.rglob("*.ckpt"))


RULES = (
    Rule("K1", "warning", "training goes on with numbers that are none", k1),
    Rule("K2", "error", "mindformers refuses it, or cannot resume from what it saves", k2),
    Rule("K2", "warning", "mindformers' default", k2_values),
    Rule("K3", "error", "it would never be saved at that step", k3),
    Rule("K4", "error", "mindformers would begin from random weights", k4),
    Rule("K5", "error", "there is no optimizer to resume", k5),
    Rule("K6", "error", "only checkpoints for several devices are converted", k6),
    Rule("K7", "error", "the formats differ", k7),
    Rule("K8", "warning", "profiling slows every step and fills the disk", k8),
    Rule("K9", "error", "mindformers refuses both", k9),
    Rule("K10", "error", "mindformers ends after compiling", k10),
    Rule("K11", "error", "mindformers 1.9 leaves it out", k11),
)
