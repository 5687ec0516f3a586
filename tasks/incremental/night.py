"""The configuration of a night, made from the one of the first training, and whether its outcome is taken."""

from dataclasses import dataclass
from pathlib import Path

from configs.errors import PipelineError
from configs.schema import RunConfig
from tasks.artifact import Manifest
from tasks.evaluate import HeldOutLoss, losses_of, mean_loss
from tasks.incremental.states import Lineage
from tasks.pack.tokens import FOLDER
from tasks.tokenizer import read_description


@dataclass(frozen=True)
class Verdict:
    """Losses on held-out text before and after a night: of older nights, and of this one."""

    old_before: HeldOutLoss
    old_after: HeldOutLoss
    new_before: HeldOutLoss
    new_after: HeldOutLoss

    @property
    def old_rise(self) -> float:
        """Share by which the perplexity of old text rose; 0 where nothing old was held out."""
        return self.old_after.perplexity / self.old_before.perplexity - 1 if self.old_before.tokens else 0.0

    def perplexities(self) -> dict[str, float | None]:
        """Return what a state keeps of it."""
        named = {
            "perplexity_old": self.old_after, "perplexity_new": self.new_after,
            "before_old": self.old_before, "before_new": self.new_before,
        }  # fmt: skip
        return {name: round(loss.perplexity, 4) if loss.tokens else None for name, loss in named.items()}

    def rows(self) -> list[dict[str, object]]:
        """Return a table for people."""
        sets = (("old", self.old_before, self.old_after), ("new", self.new_before, self.new_after))
        return [
            {
                "held-out text": name,
                "tokens": before.tokens,
                "perplexity before": round(before.perplexity, 3),
                "perplexity after": round(after.perplexity, 3),
                "change": f"{after.perplexity / before.perplexity - 1:+.2%}",
            }
            for name, before, after in sets
            if before.tokens
        ]


def data_config(config: RunConfig, line: Lineage) -> RunConfig:
    """Return the configuration for the data of a night: compared with all documents before, and with their tokenizer."""
    workspace = line.workspace
    dedup = config.dedup.model_copy(update={"index": str(workspace.folder("dedup", line.keys("dedup")[-1]))})
    tokenizer = workspace.folder("pack", line.keys("pack")[0]) / FOLDER
    described = read_description(tokenizer)
    named = {"eos_token": described.eos_token, "bos_token": described.bos_token, "pad_token": described.pad_token}
    kind = {"pattern": described.pattern or None, "special_tokens": list(described.special_tokens)}
    fixed = config.pack.tokenizer.model_copy(
        update={"path": str(tokenizer / described.file), "package": None, "package_file": None} | named | kind
    )
    pack = config.pack.model_copy(update={"tokenizer": fixed})
    return config.model_copy(update={"dedup": dedup, "pack": pack})


def training_config(config: RunConfig, checkpoint: Path) -> RunConfig:
    """Return the configuration of a night's training: from a checkpoint's weights, with a re-warmed learning rate."""
    section = config.incremental
    model = config.model.model_copy(update={"init": "checkpoint", "init_from": str(checkpoint)})
    training = config.training.model_copy(
        update={
            "learning_rate": section.learning_rate,
            "final_learning_rate": section.final_learning_rate,
            "warmup_share": section.warmup_share,
        }
    )
    smoke = config.smoke.model_copy(update={"min_loss_drop": -section.max_loss_rise})
    pretrain = config.pretrain.model_copy(update={"steps": None, "epochs": section.epochs, "evaluate_every": None})
    return config.model_copy(update={"model": model, "training": training, "smoke": smoke, "pretrain": pretrain})


def judge(before: Manifest, after: Manifest, old: list[str], new: list[str]) -> Verdict:
    """Compare two evaluations. `old` and `new`: keys of the token datasets of older nights and of this one."""
    was, became = losses_of(before.stats["losses"]), losses_of(after.stats["losses"])
    return Verdict(mean_loss(was, old), mean_loss(became, old), mean_loss(was, new), mean_loss(became, new))


def check(verdict: Verdict, config: RunConfig, checkpoint: Path) -> None:
    """Raise `PipelineError` when old text has suffered too much for the checkpoint to be gone on from."""
    limit = config.incremental.max_old_perplexity_rise
    if verdict.old_rise > limit:
        raise PipelineError(
            f"incremental: the perplexity of old held-out text rose from {verdict.old_before.perplexity:.3f} to "
            f"{verdict.old_after.perplexity:.3f}, by {verdict.old_rise:.1%}, more than incremental.max_old_perplexity_rise "
            f"{limit:.1%}; the checkpoint is kept in {checkpoint}, and the next run goes on from the one before. Raise "
            "incremental.old_share, lower incremental.learning_rate, or raise the limit"
        )


def refuse_unfit(config: RunConfig) -> None:
    """Raise `PipelineError` for what an incremental run cannot do."""
    if config.training.dataset != "mindrecord":
        raise PipelineError(
            f"training.dataset {config.training.dataset}: an incremental run mixes sequences, and Megatron's loader makes "
            "its own; write mindrecord"
        )
    if config.training.semi_auto:
        raise PipelineError(
            "training.parallel: an incremental run begins with our own checkpoints, which data parallel has alone; leave "
            "tensor, pipeline, context and optimizer_sharding out"
        )
