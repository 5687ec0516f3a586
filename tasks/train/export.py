"""Writes a checkpoint of this project as a Hugging Face folder. What its network and tokenizer are is read from the
artifacts that it was made from.
"""

from pathlib import Path

from configs.errors import PipelineError
from configs.training import ModelConfig
from tasks.artifact import Manifest, Workspace, read_manifest
from tasks.train.checkpoints import WEIGHTS, find_checkpoint
from tasks.train.hugging_face import export_folder


def export_checkpoint(given: Path, target: Path) -> list[Path]:
    """Write a checkpoint, or the last one of a training, as a Hugging Face folder; return its files.

    Raises:
        PipelineError: no checkpoint, one whose artifact is gone, of a family that is not written, or a target in use.
    """
    checkpoint = find_checkpoint(given)
    training = _training_of(checkpoint)
    model = ModelConfig.model_validate(
        {name: value for name, value in training.config["model"].items() if name in ModelConfig.model_fields}
        | {"init": "scratch"}
    )
    if model.family != "llama":
        raise PipelineError(
            f"{checkpoint}: a {model.family}; mindformers writes those, and has tools that convert them"
        )
    folder = checkpoint.parents[1]
    workspace = Workspace(folder.parents[2])
    dataset = workspace.manifest("pack", training.inputs[0])
    details = {
        "seq_length": training.config["seq_length"],
        "vocab_size": model.vocab_size or dataset.stats["vocab_size"],
        **{f"{name}_id": dataset.stats[f"{name}_id"] for name in ("eos", "bos", "pad")},
    }
    tokenizer = workspace.folder("pack", dataset.key) / "tokenizer"
    return export_folder(checkpoint / WEIGHTS, model, details, tokenizer, target)


def _training_of(checkpoint: Path) -> Manifest:
    manifest = read_manifest(checkpoint.parents[1])
    if manifest.stage != "pretrain":
        raise PipelineError(f"{checkpoint}: of the stage {manifest.stage}, expected one of pretrain")
    return manifest
