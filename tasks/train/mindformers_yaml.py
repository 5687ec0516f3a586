"""Writes the YAML that mindformers' Trainer runs from, out of the project's own configuration.

mindformers ignores keys that it does not know, so only keys that it reads are written. What CPU needs (no fused
kernels, float32 where it has no other, an overflow test of our own) is decided here, not by the user.
"""

import math
from typing import TYPE_CHECKING, Any

import yaml

from tasks.files import atomic_path
from tasks.train.columns import end_places

if TYPE_CHECKING:
    from tasks.train.launch import TrainingJob

FILE = "training.yaml"
MINDSPORE_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
LOSS_SCALE_WINDOW = 1000
"""Steps without overflow after which the dynamic loss scale doubles, as in mixed-precision training since Apex."""


def write(job: "TrainingJob", start: int) -> None:
    """Write `training.yaml` into the job's folder. `start`: the step that a resumed training goes on from, else 0."""
    with atomic_path(job.folder / FILE) as temporary:
        text = yaml.safe_dump(mindformers_config(job, start), sort_keys=False, allow_unicode=True)
        temporary.write_text(text, encoding="utf-8")


def mindformers_config(job: "TrainingJob", start: int) -> dict[str, Any]:
    """Return the YAML's content: the legacy Llama family, causal language modelling, data parallel."""
    training = job.training
    on_cpu = training.device == "CPU"
    return {
        "seed": job.seed,
        "output_dir": "./output",
        "run_mode": "train",
        "load_checkpoint": "",
        "resume_training": False,
        "data_skip_steps": start,
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": "llama"},
        "runner_config": {
            "epochs": 1 if job.dataset.kind == "megatron" else epochs(job),
            "batch_size": training.batch_size,
            "sink_mode": False,
        },
        "runner_wrapper": {
            "type": "PortableTrainOneStep" if on_cpu else "MFTrainOneStepCell",
            "scale_sense": _loss_scale(job),
            "use_clip_grad": True,
            "max_grad_norm": training.max_gradient_norm,
        },
        "optimizer": {
            "type": "AdamW",
            "betas": [training.beta1, training.beta2],
            "eps": training.eps,
            "weight_decay": training.weight_decay,
        },
        "lr_schedule": {
            "type": "CosineWithWarmUpLR",
            "learning_rate": training.learning_rate,
            "lr_end": training.final_learning_rate,
            "warmup_steps": warmup_steps(job),
            "total_steps": job.steps,
        },
        "train_dataset": _dataset(job),
        "train_dataset_task": {"type": "CausalLanguageModelDataset", "dataset_config": _dataset(job)},
        "use_parallel": training.workers > 1,
        "parallel": {"parallel_mode": 0, "gradients_mean": True},
        "parallel_config": {"data_parallel": training.workers, "model_parallel": 1, "pipeline_stage": 1},
        "recompute_config": {"recompute": training.recompute},
        "callbacks": [{"type": "StepRecorder"}],
        "context": {"mode": 0, "device_target": training.device},
        "model": {"model_config": _model(job), "arch": {"type": "LlamaForCausalLM"}},
    }


def warmup_steps(job: "TrainingJob") -> int:
    return round(job.steps * job.training.warmup_share)


def epochs(job: "TrainingJob") -> int:
    """Return how many passes over the dataset hold all steps."""
    return math.ceil(job.steps / (job.sequences // (job.training.batch_size * job.training.workers)))


def _dataset(job: "TrainingJob") -> dict[str, Any]:
    """MindRecord's sequences come in the order of the file, which pack has shuffled: so a resumed training finds its place.
    Megatron's loader shuffles by the seed.
    """
    return {
        "data_loader": _mindrecord(job) if job.dataset.kind == "mindrecord" else _megatron(job),
        "input_columns": _columns(job),
        "num_parallel_workers": 1,
        "python_multiprocessing": False,
        "drop_remainder": True,
        "batch_size": job.training.batch_size,
        "repeat": 1,
        "numa_enable": False,
        "prefetch_size": 1,
    }


def _columns(job: "TrainingJob") -> list[str]:
    """Return the columns that the model is given. Rotary positions count from one another, so what resets the mask also
    resets them; the model takes position_ids and leaves them aside.

    A mask as a square (`attention_mask`) is never among them: without flash attention the model adds it to the scores as
    it is, and tokens would see what comes after them.
    """
    dataset = job.dataset
    if dataset.kind == "mindrecord":
        return ["input_ids", "labels", "loss_mask"] if dataset.training_columns else ["input_ids"]
    columns = ["input_ids", "labels", "loss_mask", "position_ids"]
    return [*columns, "actual_seq_len"] if dataset.reset else columns


def _mindrecord(job: "TrainingJob") -> dict[str, Any]:
    files = [str(file.absolute()) for file in job.dataset.files]
    return {"type": "MindDataset", "dataset_files": files, "shuffle": False}


def _megatron(job: "TrainingJob") -> dict[str, Any]:
    """Return the loader's settings. A mask for each sequence comes compressed, as the places where documents end."""
    dataset = job.dataset
    blend: list[str] = []
    for share, file in zip(dataset.shares, dataset.files, strict=True):
        blend += [f"{share:.8f}", str(file.absolute())]
    return {
        "type": "BlendedMegatronDatasetDataLoader",
        "datasets_type": "GPTDataset",
        "sizes": [epochs(job) * job.sequences, 0, 0],
        "shuffle": False,
        "config": {
            "seed": job.seed,
            "seq_length": job.seq_length,
            "split": "1, 0, 0",
            "data_path": blend,
            "path_to_cache": str((job.folder / "megatron_index").absolute()),
            "num_dataset_builder_threads": 1,
            "mmap_bin_files": True,
            "eod": job.eos_id,
            "pad": job.pad_id,
            "eod_mask_loss": False,
            "reset_position_ids": dataset.reset,
            "reset_attention_mask": dataset.reset,
            "create_attention_mask": False,
            "create_compressed_eod_mask": dataset.reset,
            "eod_pad_length": end_places(dataset.documents_in_a_sequence),
        },
    }


def _model(job: "TrainingJob") -> dict[str, Any]:
    model, on_cpu = job.model, job.training.device == "CPU"
    compute = MINDSPORE_TYPES[job.training.precision]
    return {
        "type": "LlamaConfig",
        "batch_size": job.training.batch_size,
        "seq_length": job.seq_length,
        "vocab_size": job.vocab_size,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_layers": model.num_layers,
        "num_heads": model.num_heads,
        "n_kv_heads": model.num_kv_heads,
        "rms_norm_eps": model.rms_norm_eps,
        "init_method_std": model.initializer_range,
        "eos_token_id": job.eos_id,
        "pad_token_id": job.pad_id,
        "compute_dtype": compute,
        "layernorm_compute_type": "float32",
        "softmax_compute_type": "float32",
        "rotary_dtype": "float32",
        "param_init_type": "float32",
        "input_sliced_sig": "labels" in _columns(job),
        "use_eod_attn_mask_compression": "actual_seq_len" in _columns(job),
        "use_flash_attention": not on_cpu,
        "fused_rms_norm": not on_cpu,
        "use_rope_slice": on_cpu,
    }


def _loss_scale(job: "TrainingJob") -> Any:
    """Only fp16 needs scaling: its smallest number is 6e-8, and small gradients would become 0."""
    if job.training.precision != "fp16":
        return 1.0
    return {
        "type": "DynamicLossScaleUpdateCell",
        "loss_scale_value": job.training.loss_scale,
        "scale_factor": 2,
        "scale_window": LOSS_SCALE_WINDOW,
    }
