"""Writes the YAML that mindformers' Trainer runs from, out of the project's own configuration.

mindformers ignores keys that it does not know, so only keys that it reads are written. What CPU needs (no fused
kernels, float32 where it has no other, an overflow test of our own) is decided here, not by the user.

Two ways to spread a training: in data parallel each device holds all of the network, and checkpoints are our own; for
tensor, pipeline and context parallelism, optimizer sharding and accumulation on Ascend MindSpore spreads it by strategies
(semi_auto), and mindformers' distributed checkpoints are used.
"""

import math
from pathlib import Path
from typing import Any

import yaml

from configs.training import TrainingConfig
from tasks.files import atomic_path, write_json
from tasks.train.columns import end_places
from tasks.train.job import TrainingJob
from tasks.train.networks import network, trainer_name
from tasks.train.settings import Setting, origins, plain, setting

FILE = "training.yaml"
DISTRIBUTED = "distributed"
SPEED_UP_FILE = "parallel_speed_up.json"
BROADCAST_LEVEL = 3
"""Of Megatron data in semi_auto: each device group reads once and hands on; mindformers refuses less."""
LOSS_SCALE_WINDOW = 1000
"""Steps without overflow after which the dynamic loss scale doubles, as in mixed-precision training since Apex."""
SHARD_THRESHOLD_KB = 64
"""Optimizer sharding leaves smaller tensors whole."""
HCCL_RESERVE_GB = 6
"""What MindSpore must leave of a device for communication buffers and the driver: 58 of 64 GB, as mindformers' own."""


def write(job: TrainingJob, start: int) -> None:
    """Write `training.yaml` into the job's folder. `start`: the step that a resumed training goes on from, else 0."""
    with atomic_path(job.folder / FILE) as temporary:
        text = yaml.safe_dump(mindformers_config(job, start), sort_keys=False, allow_unicode=True)
        temporary.write_text(text, encoding="utf-8")
    if _needs_speed_up(job):
        write_json(job.folder / SPEED_UP_FILE, {"dataset_broadcast_opt_level": BROADCAST_LEVEL})


def mindformers_config(job: TrainingJob, start: int) -> dict[str, Any]:
    """Return the YAML's content."""
    content: dict[str, Any] = plain(described(job, start))
    return content


def with_origins(job: TrainingJob) -> list[str]:
    """Return the YAML's lines, each value with where it comes from."""
    lines: list[str] = []
    above: tuple[str, ...] = ()
    for path, value, origin in origins(described(job, 0)):
        shared = next(
            (n for n, (a, b) in enumerate(zip(above, path, strict=False)) if a != b), min(len(above), len(path))
        )
        lines += [f"{'  ' * depth}{_key(path[depth])}" for depth in range(shared, len(path) - 1)]
        lines.append(f"{'  ' * (len(path) - 1)}{_key(path[-1])} {_written(value)}  # {origin}")
        above = path
    return lines


def _written(value: Any) -> str:
    """Return a value as YAML writes it on one line; 1e-8 would be text."""
    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n...\n").rstrip("\n")


def _key(name: str) -> str:
    return "-" if name.isdigit() else f"{name}:"


def described(job: TrainingJob, start: int) -> dict[str, Any]:
    """Return the YAML's content, values with their origins."""
    training = job.training
    dataset = _dataset(job)
    return {
        "seed": Setting(job.seed, "config seed"),
        "output_dir": str((job.folder / DISTRIBUTED).absolute()) if training.semi_auto else "./output",
        "run_mode": "train",
        "use_legacy": job.model.family == "llama",
        **_checkpoints(job, start),
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": trainer_name(job)},
        "runner_config": _runner(job),
        "runner_wrapper": _wrapper(job),
        "optimizer": {
            "type": "AdamW",
            "betas": [_training(job, "beta1"), _training(job, "beta2")],
            "eps": _training(job, "eps"),
            "weight_decay": _training(job, "weight_decay"),
        },
        "lr_schedule": _schedule(job),
        "train_dataset": dataset,
        "train_dataset_task": {"type": "CausalLanguageModelDataset", "dataset_config": dataset},
        "use_parallel": training.workers > 1,
        "parallel": _parallel(job),
        "parallel_config": _parallel_config(job),
        "recompute_config": _recompute(job),
        "callbacks": _callbacks(job),
        "context": _context(job),
        "model": network(job, columns(job)),
    }


def warmup_steps(training: TrainingConfig, steps: int) -> int:
    """Return the steps of the warm-up. wsd needs one at least: mindformers divides 0 by 0 at step 0 without."""
    return max(round(steps * training.warmup_share), 1 if training.schedule == "wsd" else 0)


def decay_start(training: TrainingConfig, steps: int) -> int:
    """Return the step from which wsd's learning rate falls."""
    return min(steps - 1, max(warmup_steps(training, steps), steps - round(steps * training.decay_share)))


def distributed_step(folder: Path) -> int:
    """Return the last step that mindformers' distributed checkpoints have, 0 without any."""
    latest = folder / DISTRIBUTED / "checkpoint" / "latest_checkpointed_iteration.txt"
    return int(latest.read_text(encoding="utf-8")) if latest.is_file() else 0


def epochs(job: TrainingJob) -> int:
    """Return how many passes over the dataset hold all steps."""
    return math.ceil(job.steps / (job.sequences // job.global_batch))


def columns(job: TrainingJob) -> list[str]:
    """Return the columns that the model is given. Rotary positions count from one another, so what resets the mask also
    resets them; the legacy model takes position_ids and leaves them aside.

    A mask as a square (`attention_mask`) is never among them: without flash attention the model adds it to the scores as
    it is, and tokens would see what comes after them.
    """
    dataset = job.dataset
    if dataset.kind == "mindrecord" and job.model.family == "llama":
        return ["input_ids", "labels", "loss_mask"] if dataset.training_columns else ["input_ids"]
    names = ["input_ids", "labels", "loss_mask", "position_ids"]
    return [*names, "actual_seq_len"] if dataset.reset else names


def _training(job: TrainingJob, key: str) -> Setting:
    return setting(job.training, key, "training")


def _spread(job: TrainingJob, key: str) -> Setting:
    return setting(job.training.parallel, key, "training.parallel")


def _checkpoints(job: TrainingJob, start: int) -> dict[str, Any]:
    """mindformers' own format is used where the network is spread; else nothing of it: the worker restores by itself."""
    if not job.training.semi_auto:
        return {"load_checkpoint": "", "resume_training": False, "data_skip_steps": start}
    source = job.folder / DISTRIBUTED / "checkpoint" if start else job.init_weights
    return {
        "load_checkpoint": str(source.absolute()) if source else "",
        "load_ckpt_format": "safetensors",
        "auto_trans_ckpt": _in_legacy_format(job) and not start,
        "resume_training": start > 0,
        "use_legacy_format": _in_legacy_format(job),
    }


def _in_legacy_format(job: TrainingJob) -> bool:
    """Whole weights of the legacy Llama are cut for the devices (auto_trans_ckpt) by the old format alone."""
    return job.init_weights is not None and job.model.family == "llama"


def _runner(job: TrainingJob) -> dict[str, Any]:
    """On CPU accumulation happens in our own step, which is given all of a step's sequences at once."""
    training, semi_auto = job.training, job.training.semi_auto
    by_itself = semi_auto and training.parallel.pipeline == 1
    batch_size = _training(job, "batch_size")
    if not semi_auto and training.gradient_accumulation > 1:
        batch_size = Setting(
            training.batch_size * training.gradient_accumulation,
            "config training.batch_size, training.gradient_accumulation",
        )
    return {
        "epochs": 1 if job.dataset.kind == "megatron" else epochs(job),
        "batch_size": batch_size,
        "sink_mode": training.device == "Ascend",
        "sink_size": 1,
        "gradient_accumulation_steps": _accumulation(job) if by_itself else 1,
    }


def _accumulation(job: TrainingJob) -> Setting:
    training = job.training
    origin = "global_batch_tokens" if training.global_batch_tokens is not None else "gradient_accumulation"
    return Setting(training.gradient_accumulation, setting(training, origin, "training").origin)


def _wrapper(job: TrainingJob) -> dict[str, Any]:
    training = job.training
    in_pieces = training.semi_auto and (training.parallel.pipeline > 1 or training.gradient_accumulation > 1)
    kind = "MFPipelineWithLossScaleCell" if in_pieces else "MFTrainOneStepCell"
    return {
        "type": "PortableTrainOneStep" if training.device == "CPU" else kind,
        "scale_sense": _loss_scale(job),
        "use_clip_grad": True,
        "max_grad_norm": _training(job, "max_gradient_norm"),
        **({"micro_batch_num": _accumulation(job)} if in_pieces else {}),
    }


def _loss_scale(job: TrainingJob) -> Any:
    """Only fp16 needs scaling: its smallest number is 6e-8, and small gradients would become 0."""
    training = job.training
    if training.precision != "fp16":
        return 1.0
    given = _training(job, "loss_scale")
    if training.loss_scaling == "static":
        return Setting(float(given.value), given.origin)
    return {
        "type": "DynamicLossScaleUpdateCell",
        "loss_scale_value": given,
        "scale_factor": 2,
        "scale_window": LOSS_SCALE_WINDOW,
    }


def _schedule(job: TrainingJob) -> dict[str, Any]:
    training = job.training
    common = {
        "learning_rate": _training(job, "learning_rate"),
        "lr_end": _training(job, "final_learning_rate"),
        "warmup_steps": Setting(warmup_steps(training, job.steps), _training(job, "warmup_share").origin),
        "total_steps": job.steps,
    }
    if training.schedule == "cosine":
        return {"type": "CosineWithWarmUpLR", **common}
    start = Setting(decay_start(training, job.steps), _training(job, "decay_share").origin)
    return {"type": "WarmUpStableDecayLR", **common, "decay_start_steps": start}


def _parallel(job: TrainingJob) -> dict[str, Any]:
    """MindRecord is read whole by each device and cut by the framework (full_batch); Megatron data by a strategy."""
    if not job.training.semi_auto:
        return {"parallel_mode": 0, "gradients_mean": True}
    whole = job.dataset.kind == "mindrecord"
    copies = job.training.data_parallel
    strategy: dict[str, Any] = {} if whole else {"dataset_strategy": [[copies, 1] for _ in columns(job)]}
    return {
        "parallel_mode": 1,
        "gradients_mean": False,
        "enable_alltoall": False,
        "full_batch": whole,
        **strategy,
        "enable_parallel_optimizer": _spread(job, "optimizer_sharding"),
        "parallel_optimizer_config": {
            "gradient_accumulation_shard": False,
            "parallel_optimizer_threshold": SHARD_THRESHOLD_KB,
        },
        "strategy_ckpt_config": {"save_file": "./ckpt_strategy.ckpt", "only_trainable_params": False},
    }


def _parallel_config(job: TrainingJob) -> dict[str, Any]:
    training = job.training
    if not training.semi_auto:
        return {"data_parallel": training.data_parallel, "model_parallel": 1, "pipeline_stage": 1}
    pipeline = training.parallel.pipeline
    data = training.parallel.data
    return {
        "data_parallel": training.data_parallel if data is None else _spread(job, "data"),
        "model_parallel": _spread(job, "tensor"),
        "context_parallel": _spread(job, "context"),
        "pipeline_stage": _spread(job, "pipeline"),
        "micro_batch_num": _accumulation(job) if pipeline > 1 else 1,
        "use_seq_parallel": _spread(job, "sequence"),
        "vocab_emb_dp": True,
        "gradient_aggregation_group": 4,
    }


def _recompute(job: TrainingJob) -> dict[str, Any]:
    given = _training(job, "recompute")
    sharded = job.training.parallel.optimizer_sharding
    return {
        "recompute": Setting(given.value == "full", given.origin),
        "select_recompute": Setting(given.value == "selective", given.origin),
        "parallel_optimizer_comm_recompute": sharded and given.value != "none",
        "mp_comm_recompute": True,
    }


def _callbacks(job: TrainingJob) -> list[dict[str, Any]]:
    recorder: dict[str, Any] = {"type": "StepRecorder"}
    if not job.training.semi_auto or job.checkpoint_every is None:
        return [recorder]
    monitor = {
        "type": "CheckpointMonitor",
        "prefix": "mindpretrain",
        "save_checkpoint_steps": Setting(job.checkpoint_every, "config pretrain.checkpoint_every"),
        "keep_checkpoint_max": Setting(job.keep_checkpoints, "config pretrain.keep_checkpoints"),
        "integrated_save": False,
        "async_save": False,
        "checkpoint_format": "safetensors",
        "use_legacy_format": _in_legacy_format(job),
    }
    return [recorder, monitor]


def _context(job: TrainingJob) -> dict[str, Any]:
    context: dict[str, Any] = {"mode": 0, "device_target": _training(job, "device")}
    if job.training.device == "Ascend" and job.training.memory is not None:
        usable = job.training.memory // 10**9 - HCCL_RESERVE_GB
        context["max_device_memory"] = Setting(f"{usable}GB", _training(job, "device_memory").origin)
    if _needs_speed_up(job):
        context["ascend_config"] = {"parallel_speed_up_json_path": str((job.folder / SPEED_UP_FILE).absolute())}
    return context


def _needs_speed_up(job: TrainingJob) -> bool:
    return job.training.semi_auto and job.dataset.kind == "megatron"


def _dataset(job: TrainingJob) -> dict[str, Any]:
    """MindRecord's sequences come in the order of the file, which pack has shuffled: so a resumed training finds its place.
    Megatron's loader shuffles by the seed.
    """
    names = columns(job)
    return {
        "data_loader": _mindrecord(job) if job.dataset.kind == "mindrecord" else _megatron(job),
        "input_columns": names,
        **({} if job.model.family == "llama" else {"construct_args_key": names}),
        "num_parallel_workers": 1,
        "python_multiprocessing": False,
        "drop_remainder": True,
        "batch_size": _runner(job)["batch_size"],
        "repeat": 1,
        "numa_enable": False,
        "prefetch_size": 1,
    }


def _mindrecord(job: TrainingJob) -> dict[str, Any]:
    files = [str(file.absolute()) for file in job.dataset.files]
    return {"type": "MindDataset", "dataset_files": files, "shuffle": False}


def _megatron(job: TrainingJob) -> dict[str, Any]:
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
            "seed": Setting(job.seed, "config seed"),
            "seq_length": Setting(job.seq_length, "config pack.seq_length"),
            "split": "1, 0, 0",
            "data_path": blend,
            "path_to_cache": str((job.folder / "megatron_index").absolute()),
            "num_dataset_builder_threads": 1,
            "mmap_bin_files": True,
            "eod": Setting(job.eos_id, "tokenizer eos"),
            "pad": Setting(job.pad_id, "tokenizer pad"),
            "eod_mask_loss": False,
            "reset_position_ids": dataset.reset,
            "reset_attention_mask": dataset.reset,
            "create_attention_mask": False,
            "create_compressed_eod_mask": dataset.reset,
            "eod_pad_length": end_places(dataset.documents_in_a_sequence),
        },
    }
