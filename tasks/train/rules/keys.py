"""Keys that mindformers does not know. It drops most of them in silence; here each is refused, with the real key where there
is one: those of older versions and of recipes that were never right.
"""

import difflib
from collections.abc import Iterator
from typing import Any

from tasks.train import installed
from tasks.train.rules.finding import Finding

TRANSLATIONS = {
    "train.mixed_precision": "model.model_config.compute_dtype: float16 or bfloat16",
    "train.amp_level": "model.model_config.compute_dtype, with layernorm_compute_type and softmax_compute_type: float32",
    "train.loss_scale": "runner_wrapper.scale_sense: {type: DynamicLossScaleUpdateCell, loss_scale_value: 65536, "
    "scale_factor: 2, scale_window: 1000}; a number there is a static scale",
    "train.ckpt_dir": "output_dir, and CheckpointMonitor among the callbacks",
    "train.save_checkpoint_steps": "callbacks: [{type: CheckpointMonitor, save_checkpoint_steps: 500}]",
    "train.keep_checkpoint_max": "callbacks: [{type: CheckpointMonitor, keep_checkpoint_max: 3}]",
    "model.type": "model.arch.type (LlamaForCausalLM) and model.model_config.type (LlamaConfig)",
    "model.LlamaConfig": "model.model_config; recomputation is recompute_config.recompute",
    "model.seq_length": "model.model_config.seq_length",
    "model.hidden_size": "model.model_config.hidden_size",
    "model.num_layers": "model.model_config.num_layers",
    "model.num_heads": "model.model_config.num_heads",
    "model.vocab_size": "model.model_config.vocab_size",
    "model.checkpoint_name_or_path": "load_checkpoint",
    "model.recompute": "recompute_config.recompute",
    "optimizer.epsilon": "optimizer.eps: 1.e-8",
    "optimizer.beta1": "optimizer.betas: [0.9, 0.95] (of AdamW)",
    "optimizer.beta2": "optimizer.betas: [0.9, 0.95] (of AdamW)",
    "grad_clip": "runner_wrapper.use_clip_grad: True and max_grad_norm: 1.0",
    "train.grad_clip": "runner_wrapper.use_clip_grad: True and max_grad_norm: 1.0",
    "recompute": "recompute_config.recompute",
    "epsilon": "optimizer.eps: 1.e-8",
    "warmup_ratio": "lr_schedule.warmup_ratio",
    "learning_rate": "lr_schedule.learning_rate",
}
ROOMS = {"trainer", "metric", "processor", "train_dataset", "eval_dataset", "train_dataset_task", "eval_dataset_task"}
"""Sections whose content depends on classes of many kinds; only their own keys' spelling is looked at elsewhere."""
DATASET_KEYS = {
    "data_loader", "input_columns", "output_columns", "construct_args_key", "num_parallel_workers",
    "python_multiprocessing", "drop_remainder", "batch_size", "repeat", "numa_enable", "prefetch_size", "seed",
    "do_eval", "eod_reset", "eod_token_id", "auto_tune", "filepath_prefix", "autotune_per_step", "profile",
    "tokenizer", "shuffle", "use_parallel", "dynamic_batch", "divisor", "remainder", "max_length",
    "max_target_length", "ignore_token_id", "text_transforms", "mask_policy", "sampler", "column_order",
    "token_monitor", "token_monitor_config", "pad_token_id", "max_size",
}  # fmt: skip


def check_keys(content: dict[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each key that the installed mindformers would leave out."""
    for name, given in content.items():
        value = _renamed_optimizer(given) if name == "optimizer" and isinstance(given, dict) else given
        if name not in installed.general_keys():
            yield from _unknown_section(name, value)
        elif name in ("callbacks", "eval_callbacks") and isinstance(value, list):
            for entry in value:
                yield from _of_class(f"{name}.{entry.get('type')}", entry)
        elif name == "model" and isinstance(value, dict):
            yield from _of_model(value)
        elif name in ("train_dataset", "eval_dataset") and isinstance(value, dict):
            yield from _unknown(name, value, frozenset(DATASET_KEYS))
        elif name not in ROOMS and isinstance(value, dict):
            known = installed.section_keys(name)
            yield from _of_class(name, value) if known is None else _unknown(name, value, known)


def _renamed_optimizer(optimizer: dict[str, Any]) -> dict[str, Any]:
    """Return an optimizer of an older version as AdamW, which the rule L10 asks for: its keys are looked at as such."""
    return {**optimizer, "type": "AdamW"} if optimizer.get("type") in ("AdamWeightDecay", None) else optimizer


def _unknown_section(name: str, value: Any) -> Iterator[Finding]:
    if isinstance(value, dict) and any(f"{name}.{key}" in TRANSLATIONS for key in value):
        for key in value:
            yield _finding(f"{name}.{key}", frozenset())
    else:
        yield _finding(name, installed.general_keys())


def _of_model(model: dict[str, Any]) -> Iterator[Finding]:
    known = frozenset({"model_config", "arch"})
    yield from _unknown("model", model, known)
    config = model.get("model_config")
    if isinstance(config, dict):
        kind = str(config.get("type") or {"qwen3": "Qwen3Config"}.get(str(config.get("model_type")), "LlamaConfig"))
        if installed.class_keys(kind) is not None:
            yield from _unknown("model.model_config", config, installed.model_keys(kind) | {"type"})


def _of_class(place: str, section: dict[str, Any]) -> Iterator[Finding]:
    kind = section.get("type")
    known = installed.class_keys(str(kind)) if kind else None
    if kind and known is None:
        yield Finding(
            "keys", "error", f"{place}.type", f"{kind!r} is no class that mindformers has", "use one that it has"
        )
    if known is not None:
        yield from _unknown(place, section, known)


def _unknown(place: str, section: dict[str, Any], known: frozenset[str]) -> Iterator[Finding]:
    yield from (_finding(f"{place}.{key}", known) for key in section if key not in known)


def _finding(key: str, known: frozenset[str]) -> Finding:
    close = difflib.get_close_matches(key.rpartition(".")[2], known, n=1)
    mend = f"write {close[0]}, or leave it out" if close else "leave it out: it would have no effect"
    real = TRANSLATIONS.get(key)
    return Finding(
        "keys",
        "error",
        key,
        "mindformers knows no such key and leaves it out in silence",
        f"write {real}" if real else mend,
    )
