"""The long training. It leaves its last checkpoints, the metrics of every step, the mindformers YAML that it ran with, the
perplexity of held-out text, and a text that the model continued.
"""

import json
from pathlib import Path
from typing import Any

from configs.schema import RunConfig
from tasks.artifact import Artifact, Manifest
from tasks.pack.dataset import Dataset, token_texts
from tasks.stage import Stage, StageResult, StageRun
from tasks.train.initial import first_weights
from tasks.train.job import SAMPLE
from tasks.train.mindformers_yaml import DISTRIBUTED
from tasks.train.stages import LIBRARIES, describe, make_job, run_training, steps_per_epoch, training_settings

PROMPTS, PROMPT_TOKENS = 3, 12


def build(run: StageRun) -> StageResult:
    config, dataset, folder = run.config.pretrain, run.dataset, run.draft.folder
    held_out = dataset.manifest.stats.get("sequences_held_out", 0) if run.config.training.dataset == "mindrecord" else 0
    job = make_job(
        run.config,
        dataset,
        folder,
        planned_steps(dataset.manifest, run.config),
        checkpoint_every=config.checkpoint_every,
        keep_checkpoints=config.keep_checkpoints,
        init_weights=first_weights(run.config.model, folder, dataset.manifest.stats["vocab_size"]),
        evaluate_every=config.evaluate_every,
        evaluation_sequences=min(config.evaluation_sequences, held_out),
        max_loss_spike=config.max_loss_spike,
        sample_prompts=_prompts(dataset, held_out) if config.sample_tokens else (),
        sample_tokens=config.sample_tokens,
    )
    training = run_training(run, job)
    _write_sample(folder, dataset)
    distributed = folder / DISTRIBUTED / "checkpoint"
    checkpoints = training.result.checkpoints or ((distributed,) if distributed.is_dir() else ())
    paths = [path for checkpoint in checkpoints for path in sorted(checkpoint.rglob("*")) if path.is_file()]
    names = [path.relative_to(training.folder).as_posix() for path in checkpoints]
    return StageResult(describe(run, paths), training.stats() | {"checkpoints": names})


def planned_steps(dataset: Manifest, config: RunConfig) -> int:
    """Return the number of optimizer steps: as configured, or what `epochs` passes over the token dataset make."""
    full_pass = steps_per_epoch(dataset, config)
    if config.pretrain.steps is not None:
        return config.pretrain.steps
    return max(1, round(full_pass * (config.pretrain.epochs or 1.0)))


def settings(config: RunConfig) -> dict[str, Any]:
    return training_settings(config) | {"pretrain": config.pretrain.model_dump(exclude={"max_loss_spike"})}


def _prompts(dataset: Artifact, held_out: int) -> tuple[tuple[int, ...], ...]:
    """Return the first tokens of a few sequences, held-out ones where there are any."""
    reader = Dataset(dataset.folder, "held_out" if held_out else "train")
    count = min(PROMPTS, len(reader))
    return tuple(tuple(reader.sequence(number)[:PROMPT_TOKENS].tolist()) for number in range(count))


def _write_sample(folder: Path, dataset: Artifact) -> None:
    """Write what the model made of each prompt as text."""
    written = folder / "rank_0" / "samples.json"
    if not written.is_file():
        return
    tokenizer = Dataset(dataset.folder).tokenizer
    texts = []
    for ids in json.loads(written.read_text(encoding="utf-8")):
        prompt, added = ("".join(token_texts(tokenizer, part)) for part in (ids[:PROMPT_TOKENS], ids[PROMPT_TOKENS:]))
        texts.append(f"{prompt}⟦the model goes on⟧{added}")
    (folder / SAMPLE).write_text("\n\n".join(texts) + "\n", encoding="utf-8")


STAGE = Stage(name="pretrain", version=2, libraries=LIBRARIES, settings=settings, build=build)
