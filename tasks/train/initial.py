"""The weights that a training begins with: none (drawn by the seed), those of a checkpoint, or of a Hugging Face folder."""

from functools import lru_cache
from pathlib import Path

from configs.errors import PipelineError
from configs.training import ModelConfig
from tasks.files import checksum, content_key
from tasks.train import hugging_face
from tasks.train.checkpoints import WEIGHTS, find_checkpoint

IMPORTED = "initial.safetensors"


def initial_weights(model: ModelConfig) -> str | None:
    """Return a name of the content of the first weights; None from scratch.

    Raises:
        PipelineError: there are none at `init_from`.
    """
    if model.init == "scratch":
        return None
    return content_key([_checksum(file, file.stat().st_mtime_ns, file.stat().st_size) for file in weight_files(model)])


@lru_cache
def _checksum(file: Path, changed: int, size: int) -> str:
    return checksum(file)


def weight_files(model: ModelConfig) -> list[Path]:
    """Return the safetensors files at `init_from`.

    Raises:
        PipelineError: there are none.
    """
    if model.init_from is None:
        raise PipelineError("model.init_from is missing")
    place = Path(model.init_from)
    if model.init == "checkpoint":
        return [find_checkpoint(place) / WEIGHTS]
    return hugging_face.weight_files(place)


def first_weights(model: ModelConfig, folder: Path, vocab_size: int) -> Path | None:
    """Return a file with the first weights under mindformers' names; a Hugging Face folder is converted into `folder`.

    Raises:
        PipelineError: there are none, or they are those of another model.
    """
    if model.init == "scratch":
        return None
    if model.init == "checkpoint":
        return weight_files(model)[0]
    if model.family == "qwen3":
        return Path(model.init_from or "")  # mindformers reads the folder itself
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / IMPORTED).is_file():
        return folder / IMPORTED  # by an attempt before this one, which got its name when it was whole
    return hugging_face.import_folder(Path(model.init_from or ""), model, vocab_size, folder / IMPORTED)
