"""What happens after the first run: going on with new files, and whom to tell when a run ends badly."""

from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from configs.section import Section, Share, refuse_rising


class IncrementalConfig(Section):
    """Going on from the last checkpoint with the files that are new since: what is worth a training, and how."""

    min_new_tokens: int = Field(default=1_000_000, ge=0)
    """With fewer new tokens nothing is trained, and their files count as new again the next time."""
    settle_seconds: float = Field(default=60, ge=0)
    """A new file that changed less than so long ago may be half copied: it is looked at again after this time, and left for
    the next run if it went on changing."""
    old_share: float = Field(default=0.25, ge=0, lt=1)
    """Share of old sequences in what is trained on, against forgetting: 5% where new text is like the old, 25% and more
    where it is not (Ibrahim et al. 2024, Simple and scalable strategies to continually pre-train large language models)."""
    learning_rate: float = Field(default=3e-5, gt=0)
    """The peak to which the learning rate is warmed up again; lower than from scratch, so that less is forgotten."""
    final_learning_rate: float = Field(default=3e-6, ge=0)
    warmup_share: Share = 0.05
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the mix of new and old sequences."""
    max_loss_rise: float = Field(default=0.2, ge=0)
    """By how much (nats a token) the loss may rise in the smoke run: a re-warmed learning rate costs a little at first."""
    max_old_perplexity_rise: Share = 0.03
    """Share by which the perplexity of old held-out text may rise. A checkpoint beyond it is kept, but not gone on from."""

    @model_validator(mode="after")
    def check_learning_rates(self) -> Self:
        refuse_rising(self.learning_rate, self.final_learning_rate)
        return self


class NotifyConfig(Section):
    """Whom to tell when a flow failed, crashed or was cancelled."""

    urls_file: str | None = None
    """A file with one address a line, as the library Apprise takes them: jsons://host/path for a webhook, mailtos:// for
    e-mail, dingtalk://, feishu://, wecombot:// and so on. They hold secrets, so they are not in this file. The environment
    variable MINDPRETRAIN_NOTIFY_URLS, addresses parted by blanks, is read too."""

    @field_validator("urls_file")
    @classmethod
    def check_file(cls, given: str | None) -> str | None:
        if given is not None and not Path(given).is_file():
            raise ValueError(f"{given}: no such file; write one address a line into it, or leave urls_file out")
        return given
