"""The training that a configuration will run, before its data may be there: for `yaml`, `check` and `plan`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import PipelineError
from configs.schema import RunConfig
from tasks import chunk, dedup, filter, normalize, pack, pretrain
from tasks.artifact import Artifact, Manifest, Workspace
from tasks.raw import list_raw_files
from tasks.stage import StageInput
from tasks.tokenizer import token_ids
from tasks.tokenizer.sources import check_tokenizer
from tasks.train.job import DatasetFiles, TrainingJob
from tasks.train.stages import make_job

CHAIN = (normalize.STAGE, dedup.STAGE, filter.STAGE, chunk.STAGE, pack.STAGE)
UNKNOWN_STEPS = 1000


@dataclass(frozen=True)
class Planned:
    """A training job. `notes`: what in it is a placeholder, because data or tokenizer are not there yet."""

    job: TrainingJob
    notes: tuple[str, ...]
    tokens_known: bool


def planned_job(config: RunConfig, tokens: int | None = None) -> Planned:
    """Return the long training's job. `tokens`: to plan for, where the token dataset is not there."""
    dataset = find_dataset(config)
    settings: dict[str, Any] = {
        "checkpoint_every": config.pretrain.checkpoint_every,
        "keep_checkpoints": config.pretrain.keep_checkpoints,
    }
    if dataset is not None:
        folder = Workspace(Path(config.workspace)).folder("pretrain", pretrain.STAGE.key(config, [dataset.manifest]))
        steps = pretrain.planned_steps(dataset.manifest, config)
        job = make_job(config, dataset, folder, steps, init_weights=_weights(config), **settings)
        return Planned(job, (), tokens_known=True)
    return _without_data(config, tokens, settings)


def find_dataset(config: RunConfig) -> Artifact | None:
    """Return the configuration's token dataset, where it is there already."""
    workspace = Workspace(Path(config.workspace))
    if not workspace.folder("pack", "").is_dir():
        return None  # without looking at the raw files, which may be many
    try:
        given: StageInput = list_raw_files(config)
    except PipelineError:
        return None
    for stage in CHAIN:
        found: Manifest | None = workspace.find(stage.name, stage.key(config, [given]))
        if found is None:
            return None
        given = found
    return workspace.open(given) if isinstance(given, Manifest) else None


def _without_data(config: RunConfig, tokens: int | None, settings: dict[str, Any]) -> Planned:
    training, notes = config.training, ["the token dataset is not there yet: its paths are placeholders"]
    a_step = training.global_batch * config.pack.seq_length
    steps = config.pretrain.steps or (
        round(tokens / a_step * (config.pretrain.epochs or 1)) if tokens else UNKNOWN_STEPS
    )
    steps = max(1, steps)
    known = config.pretrain.steps is not None or tokens is not None
    if not known:
        notes.append(f"the steps are unknown until pack has counted the tokens: {UNKNOWN_STEPS} is a placeholder")
    vocab_size, eos, pad = _token_ids(config, notes)
    pack_folder = Path(config.workspace) / "artifacts" / "pack" / "KEY"
    megatron = training.dataset == "megatron"
    files = (
        (pack_folder / "megatron" / "train-00000",)
        if megatron
        else (pack_folder / "mindrecord" / "train-00000.mindrecord",)
    )
    dataset = DatasetFiles(
        kind=training.dataset,
        files=files,
        shares=(1.0,) if megatron else (),
        training_columns=config.pack.mindrecord_columns == "training",
        reset=config.pack.document_boundaries == "reset",
    )
    job = TrainingJob(
        folder=Path(config.workspace) / "artifacts" / "pretrain" / "KEY",
        dataset=dataset,
        sequences=max(steps, 1) * training.global_batch,
        vocab_size=vocab_size,
        seq_length=config.pack.seq_length,
        eos_id=eos,
        pad_id=pad,
        steps=steps,
        model=config.model,
        training=training,
        seed=config.seed,
        init_weights=_weights(config),
        **settings,
    )
    return Planned(job, tuple(notes), known)


def _token_ids(config: RunConfig, notes: list[str]) -> tuple[int, int, int]:
    """Return vocabulary size, eos and pad, as far as they are known."""
    asked = config.pack.tokenizer
    try:
        tokenizer = check_tokenizer(asked)
    except PipelineError:
        tokenizer = None
    if tokenizer is not None:
        ids, _ = token_ids(tokenizer, asked.eos_token, asked.bos_token, asked.pad_token)
        return config.model.vocab_size or ids.vocab_size, ids.eos, ids.pad
    notes.append("the tokenizer is not there yet: the ids of eos and padding are placeholders")
    return config.model.vocab_size or asked.vocab_size, 0, -1


def _weights(config: RunConfig) -> Path | None:
    return Path(config.model.init_from) if config.model.init_from is not None else None
