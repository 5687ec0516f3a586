"""Learning rate and optimizer (L), precision (M), recomputation and context (C)."""

import re
from collections.abc import Iterator
from typing import Any

from tasks.train.rules.finding import Problem, Rule
from tasks.train.rules.view import View, whole

FROM_SCRATCH, TRAINED_ON = (1e-4, 6e-4), (1e-6, 5e-5)
"""Bands of the peak learning rate, for billions of parameters."""
NUMBERS = {
    "optimizer": ("eps", "weight_decay", "learning_rate", "beta1", "beta2"),
    "lr_schedule": ("learning_rate", "lr_end", "warmup_ratio", "warmup_steps", "total_steps", "warmup_lr_init"),
    "runner_wrapper": ("scale_sense", "max_grad_norm"),
}
LARGE_MODEL = 1024
"""Hidden size from which the bands hold; small models learn ten times as fast."""
OPTIMIZERS = ("AdamW", "FusedAdamW", "PmaAdamW", "FusedPmaAdamW", "Came", "Muon")


def l1(v: View) -> Iterator[Problem]:
    for section, names in NUMBERS.items():
        for name in names:
            value = v.section(section).get(name)
            if isinstance(value, str):
                yield (f"{section}.{name}", f"{value!r} is text", f"write {_number(value)}")


def l2(v: View) -> Iterator[Problem]:
    schedule = v.section("lr_schedule")
    ratio = schedule.get("warmup_ratio")
    if isinstance(ratio, int | float) and not 0 <= ratio <= 1:
        yield ("lr_schedule.warmup_ratio", f"{ratio}", "write a share from 0 to 1, such as 0.03")


def l3(v: View) -> Iterator[Problem]:
    schedule = v.section("lr_schedule")
    for name in ("warmup_steps", "warmup_epochs"):
        if schedule.get("warmup_ratio") is not None and schedule.get(name) is not None:
            yield (
                f"lr_schedule.{name}",
                f"{schedule[name]} beside warmup_ratio {schedule['warmup_ratio']}",
                "leave one out",
            )


def l4(v: View) -> Iterator[Problem]:
    total, planned = v.section("lr_schedule").get("total_steps"), _planned_steps(v)
    if isinstance(total, int) and total > 0 and planned and total < planned:
        yield ("lr_schedule.total_steps", f"{total}, but {planned} steps are planned", f"write {planned}, or -1")


def l5(v: View) -> Iterator[Problem]:
    total, planned = v.section("lr_schedule").get("total_steps"), _planned_steps(v)
    if isinstance(total, int) and planned and total > 2 * planned:
        yield ("lr_schedule.total_steps", f"{total}, but {planned} steps are planned", f"write {planned}, or -1")


def l6(v: View) -> Iterator[Problem]:
    schedule = v.section("lr_schedule")
    total, steps, ratio = schedule.get("total_steps"), schedule.get("warmup_steps"), schedule.get("warmup_ratio")
    if isinstance(steps, int) and isinstance(total, int) and total > 0 and ratio is None:
        ratio = steps / total
    if isinstance(ratio, int | float) and not 0.001 <= ratio <= 0.1 and 0 <= ratio <= 1:
        yield ("lr_schedule.warmup_ratio", f"the warm-up is {ratio:.2%} of the steps", "write 2 to 5%")


def l7(v: View) -> Iterator[Problem]:
    ours, theirs = v.section("lr_schedule").get("learning_rate"), v.section("optimizer").get("learning_rate")
    if ours is not None and theirs is not None and ours != theirs:
        yield ("optimizer.learning_rate", f"{theirs} beside lr_schedule.learning_rate {ours}", "leave it out here")


def l8(v: View) -> Iterator[Problem]:
    decay = v.section("optimizer").get("weight_decay", 0.0)
    if isinstance(decay, int | float) and not 0 < decay <= 0.3:
        yield ("optimizer.weight_decay", f"{decay}", "write 0.1")


def l9(v: View) -> Iterator[Problem]:
    betas, eps = v.section("optimizer").get("betas"), v.section("optimizer").get("eps")
    if isinstance(betas, list) and len(betas) == 2 and isinstance(betas[1], float) and betas[1] > 0.99:
        yield ("optimizer.betas", f"{betas}", "write [0.9, 0.95]")
    if isinstance(eps, float) and eps > 1e-5:
        yield ("optimizer.eps", f"{eps}", "write 1.e-8")


def l10(v: View) -> Iterator[Problem]:
    kind = v.section("optimizer").get("type")
    if kind is not None and kind not in OPTIMIZERS:
        yield ("optimizer.type", f"{kind}", "write AdamW")


def l11(v: View) -> Iterator[Problem]:
    rate, hidden = v.section("lr_schedule").get("learning_rate"), v.of_model("hidden_size") or 0
    trained_on = bool(v.content.get("load_checkpoint")) and not v.content.get("resume_training")
    low, high = TRAINED_ON if trained_on else FROM_SCRATCH
    if isinstance(rate, int | float) and hidden >= LARGE_MODEL and not low <= rate <= high:
        how = "training on given weights" if trained_on else "training from scratch"
        yield ("lr_schedule.learning_rate", f"{rate:g} for {how}", f"stay within {low:g} and {high:g}")


def l12(v: View) -> Iterator[Problem]:
    schedule = v.section("lr_schedule")
    without = not schedule.get("warmup_steps") and not schedule.get("warmup_ratio")
    if schedule.get("type") == "WarmUpStableDecayLR" and without:
        yield ("lr_schedule.warmup_steps", "no warm-up with WarmUpStableDecayLR", "write at least 1")


def l13(v: View) -> Iterator[Problem]:
    if v.section("runner_wrapper") and not v.section("runner_wrapper").get("use_clip_grad", False):
        yield ("runner_wrapper.use_clip_grad", "off", "write True, and max_grad_norm: 1.0")


def m1(v: View) -> Iterator[Problem]:
    kind, scale = v.model.get("compute_dtype", "float16"), _loss_scale(v)
    if kind == "bfloat16" and isinstance(scale, dict):
        yield ("runner_wrapper.scale_sense", "a dynamic loss scale with bfloat16", "write 1.0")
    if kind == "float16" and not isinstance(scale, dict) and scale in (1, 1.0):
        yield ("runner_wrapper.scale_sense", "no loss scale with float16", "write DynamicLossScaleUpdateCell, 65536")


def m3(v: View) -> Iterator[Problem]:
    kind, scale = v.model.get("compute_dtype", "float16"), _loss_scale(v)
    if kind == "float16" and isinstance(scale, int | float) and scale > 1:
        yield (
            "runner_wrapper.scale_sense",
            f"a static loss scale of {scale:g}",
            "write DynamicLossScaleUpdateCell, 65536",
        )


def m4(v: View) -> Iterator[Problem]:
    scale = v.section("runner_wrapper").get("scale_sense")
    first = whole(scale.get("loss_scale_value"), 0) if isinstance(scale, dict) else 0
    if first > 2**20:
        yield (
            "runner_wrapper.scale_sense.loss_scale_value",
            f"{first}: some 16 steps are skipped first",
            "write 65536",
        )


def m6(v: View) -> Iterator[Problem]:
    for name in ("param_init_type", "params_dtype"):
        if v.model.get(name) == "float16" and v.devices > 1:
            yield (f"model.model_config.{name}", "float16", "write float32 where memory allows")


def m7(v: View) -> Iterator[Problem]:
    recompute = v.section("recompute_config").get("recompute")
    for name in ("hidden_dropout", "attention_dropout", "hidden_dropout_rate", "attention_dropout_rate"):
        if v.model.get(name) and recompute:
            yield (f"model.model_config.{name}", f"{v.model[name]} with recomputation", "write 0.0")


def c1(v: View) -> Iterator[Problem]:
    recompute, select = (v.section("recompute_config").get(name) for name in ("recompute", "select_recompute"))
    if isinstance(recompute, list) and len(recompute) > v.pp:
        yield ("recompute_config.recompute", f"{len(recompute)} entries for {v.pp} stages", "give one for each stage")
    if recompute is True and select:
        yield ("recompute_config.select_recompute", "beside recompute: True, which wins", "leave one of them out")


def c3(v: View) -> Iterator[Problem]:
    if v.semi_auto and not v.sink and (v.content.get("resume_training") or v.megatron is not None):
        yield ("runner_config.sink_mode", "False", "write sink_mode: True and sink_size: 1")


def c3_size(v: View) -> Iterator[Problem]:
    size = v.section("runner_config").get("sink_size", 1)
    if v.sink and size != 1:
        yield ("runner_config.sink_size", f"{size}", "write 1")


def c4(v: View) -> Iterator[Problem]:
    context = v.section("context")
    memory = context.get("max_device_memory", "58GB")
    if not re.fullmatch(r"\d+GB", str(memory)):
        yield ("context.max_device_memory", f"{memory!r}", "write whole gigabytes, such as 58GB")
    if context.get("mode", 0) not in (0, "GRAPH_MODE"):
        yield ("context.mode", f"{context.get('mode')}", "write 0 (graph mode)")
    if context.get("device_target", "Ascend") not in ("Ascend", "CPU"):
        yield (
            "context.device_target",
            f"{context.get('device_target')}",
            "write Ascend: there is no GPU since mindformers 1.0",
        )


def c5(v: View) -> Iterator[Problem]:
    if v.model.get("use_past"):
        yield ("model.model_config.use_past", "True in training", "write False")


def _loss_scale(v: View) -> Any:
    """Return the loss scale; without a section mindformers' own is dynamic."""
    wrapper = v.section("runner_wrapper")
    return wrapper.get("scale_sense", 1.0) if wrapper else {}


def _planned_steps(v: View) -> int | None:
    sizes = v.loader.get("sizes")
    if v.megatron is None or not isinstance(sizes, list) or not sizes or not isinstance(sizes[0], int):
        return None
    return sizes[0] // max(1, v.global_batch) * whole(v.section("runner_config").get("epochs"), 1)


def _number(text: Any) -> str:
    """Return a number that PyYAML takes for text as it takes it for a number."""
    found = re.fullmatch(r"([+-]?\d+)e([+-]?\d+)", str(text).strip(), re.IGNORECASE)
    return f"{found[1]}.e{found[2]}" if found else "a number"


RULES = (
    Rule("L1", "error", "YAML 1.1 takes a number without a dot for a string, and the class refuses it", l1),
    Rule("L2", "error", "it is a share of the steps", l2),
    Rule("L3", "warning", "the ratio wins", l3),
    Rule("L4", "error", "the learning rate would stay at its end value for the rest", l4),
    Rule("L5", "warning", "the schedule would be cut off long before its end", l5),
    Rule("L6", "warning", "too short a warm-up lets the first steps leap, too long a one wastes them", l6),
    Rule("L7", "warning", "which of them wins is not documented", l7),
    Rule("L8", "warning", "pretraining uses about 0.1", l8),
    Rule("L9", "warning", "pretraining uses 0.9, 0.95 and 1e-8: large batches make 0.999 too slow", l9),
    Rule("L10", "error", "mindformers since 1.6 knows AdamW and its kin", l10),
    Rule("L11", "warning", "outside the band in which such models train", l11),
    Rule("L12", "error", "mindformers divides 0 by 0 in step 0", l12),
    Rule("L13", "warning", "one bad batch can undo the training", l13),
    Rule("M1", "error", "fp16 needs a loss scale, bf16 none", m1),
    Rule("M3", "warning", "it does not give way when gradients overflow", m3),
    Rule("M4", "warning", "the scale has to come down first", m4),
    Rule("M6", "warning", "gradients are summed over devices in the type of the weights", m6),
    Rule("M7", "error", "the second forward pass would draw other units", m7),
    Rule("C1", "error", "recomputation is told by stage", c1),
    Rule("C3", "error", "distributed resuming and Megatron data need it", c3),
    Rule("C3", "warning", "mindformers forces it to 1, and steps are counted otherwise", c3_size),
    Rule("C4", "error", "the context would be refused", c4),
    Rule("C5", "error", "it is for inference", c5),
)
