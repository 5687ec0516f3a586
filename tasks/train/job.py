"""What a training is told and what it leaves behind: the job, and the names of the files in its folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from configs.errors import PipelineError
from configs.training import ModelConfig, TrainingConfig

METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"
JOB_FILE = "job.json"
PROBES = "probes.json"
FINISHED = "finished.json"
PROCESS = "process.json"
SAMPLE = "sample.txt"
MEETINGS = "meetings"
SCHEDULER_LOG = "scheduler.log"


@dataclass(frozen=True)
class DatasetFiles:
    """What a training reads.

    MindRecord files have one int32 column `input_ids` of seq_length + 1 tokens, or, with `training_columns`, also labels
    and loss mask, of seq_length each. Megatron's are prefixes of `.bin` and `.idx`, each with its share of the tokens; with
    `reset` tokens do not see earlier documents of their sequence. `held_out`: MindRecord files for evaluation.
    """

    kind: Literal["mindrecord", "megatron"]
    files: tuple[Path, ...]
    shares: tuple[float, ...] = ()
    training_columns: bool = False
    reset: bool = False
    documents_in_a_sequence: int = 1
    held_out: tuple[Path, ...] = ()


@dataclass(frozen=True)
class TrainingJob:
    """What to train, on what, for how long, and where its files go.

    `folder` keeps checkpoints, metrics and logs; a job that finds checkpoints there goes on from the last one. `pad_id` is
    -1 for no padding. `init_weights`: a safetensors file of the model's parameters to begin with. `evaluation_sequences`: 0
    for no evaluation. `probe`: a smoke run, which also measures each rank by itself. `sample_prompts`: token ids that the
    finished model continues by `sample_tokens`.
    """

    folder: Path
    dataset: DatasetFiles
    sequences: int
    vocab_size: int
    seq_length: int
    eos_id: int
    pad_id: int
    steps: int
    checkpoint_every: int | None
    keep_checkpoints: int
    model: ModelConfig
    training: TrainingConfig
    seed: int
    init_weights: Path | None = None
    evaluate_every: int | None = None
    evaluation_sequences: int = 0
    max_loss_spike: float | None = None
    probe: bool = False
    sample_prompts: tuple[tuple[int, ...], ...] = ()
    sample_tokens: int = 0

    @property
    def global_batch(self) -> int:
        """Sequences of a step, over all devices."""
        return self.training.global_batch

    @property
    def tokens_a_step(self) -> int:
        return self.global_batch * self.seq_length


@dataclass(frozen=True)
class TrainingResult:
    """How a training ended. `checkpoints` are folders, oldest first; `restarts`: why it was interrupted, each time."""

    steps: int
    checkpoints: tuple[Path, ...]
    resumed_from_step: int
    restarts: tuple[str, ...] = ()


class TrainingFailed(PipelineError):  # noqa: N818
    """A training that did not reach its last step; the message names the first cause and the log. `step`: the one to blame,
    where one is."""

    def __init__(self, message: str, step: int | None = None) -> None:
        super().__init__(message)
        self.step = step


class TrainingInterrupted(TrainingFailed):
    """A training that was ended from outside, and may go on from its last checkpoint."""
