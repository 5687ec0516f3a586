"""Perplexity of a checkpoint on held-out sequences of token datasets, each by itself: `evaluations.json`."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from configs.errors import PipelineError
from configs.schema import RunConfig
from tasks.files import write_json
from tasks.pack.outputs import dataset_files
from tasks.stage import Stage, StageResult, StageRun
from tasks.train.evaluation import evaluate
from tasks.train.initial import first_weights
from tasks.train.metrics import perplexity
from tasks.train.stages import LIBRARIES, make_job, training_settings

REPORT = "evaluations.json"


class HeldOutLoss(BaseModel):
    """Mean loss (nats a token) over so many tokens."""

    model_config = ConfigDict(frozen=True)
    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        return perplexity(self.loss)


def build(run: StageRun) -> StageResult:
    datasets = run.artifacts
    files = {dataset.manifest.key: dataset_files(dataset, run.config).held_out for dataset in datasets}
    measured = {key: held_out for key, held_out in files.items() if held_out}
    if not measured:
        raise PipelineError(
            "evaluate: the token datasets hold nothing out; write pack.held_out_share: 0.01 or more, and enough documents "
            "that they fill a sequence"
        )
    folder = run.draft.folder
    job = make_job(
        run.config, datasets[0], folder, steps=1, checkpoint_every=None, keep_checkpoints=2,
        evaluation_sequences=run.config.pretrain.evaluation_sequences,
        init_weights=first_weights(run.config.model, folder, datasets[0].manifest.stats["vocab_size"]),
    )  # fmt: skip
    found = evaluate(job, list(measured.values()))
    losses = {key: HeldOutLoss(loss=one.loss, tokens=one.tokens) for key, one in zip(measured, found, strict=True)}
    stats = {key: loss.model_dump() for key, loss in losses.items()}
    write_json(folder / REPORT, stats)
    total = mean_loss(losses, list(losses))
    return StageResult(run.draft.describe(REPORT), {"losses": stats, "perplexity": round(total.perplexity, 4)})


def losses_of(stats: Mapping[str, Any]) -> dict[str, HeldOutLoss]:
    return {key: HeldOutLoss.model_validate(value) for key, value in stats.items()}


def mean_loss(losses: Mapping[str, HeldOutLoss], keys: Sequence[str]) -> HeldOutLoss:
    """Return the loss over the held-out sequences of some datasets together; 0 tokens where they have none."""
    chosen = [losses[key] for key in keys if key in losses]
    tokens = sum(part.tokens for part in chosen)
    return HeldOutLoss(loss=sum(part.loss * part.tokens for part in chosen) / max(1, tokens), tokens=tokens)


def settings(config: RunConfig) -> dict[str, Any]:
    return training_settings(config) | {"evaluation_sequences": config.pretrain.evaluation_sequences}


STAGE = Stage(name="evaluate", version=1, libraries=LIBRARIES, settings=settings, build=build)
