"""Checks a token dataset that something else has written: Megatron's `.bin` with `.idx`, rows with a JSON header as pack
writes them, or bare ids.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from configs.errors import PipelineError
from configs.schema import TokenizerConfig
from tasks.pack.checks import EosFindings, examine, newline_table
from tasks.pack.megatron import DTYPE_CODES, HEADER
from tasks.tokenizer import TokenIds, load, token_ids
from tasks.tokenizer.sources import find_source

INDEX_BYTES = 34


@dataclass(frozen=True)
class Checked:
    """One file: what stands in it, and what is wrong with it."""

    file: Path
    findings: EosFindings
    problems: list[str]


def check_dataset(path: Path, config: TokenizerConfig, dtype: str | None, max_eos_share: float) -> Iterator[Checked]:
    """Yield what is found in each file of a dataset. `dtype`: of ids in a file that nothing describes.

    Raises:
        PipelineError: the tokenizer or the dataset cannot be read.
    """
    source = find_source(config)
    if source is None:
        raise PipelineError("tokenizer: name the one that made the dataset, or its eos cannot be known")
    tokenizer = load(source, "")
    ids, _ = token_ids(tokenizer, config.eos_token, None, None)
    newline = newline_table([tokenizer.piece(token) for token in range(tokenizer.vocab_size)])
    for file, tokens, problems in _files(path, dtype, ids):
        findings = examine(tokens, ids, newline)
        yield Checked(file, findings, [*problems, *findings.problems(ids, max_eos_share)])


def _files(path: Path, dtype: str | None, ids: TokenIds) -> Iterator[tuple[Path, npt.NDArray[Any], list[str]]]:
    if path.is_dir():
        described = sorted([*path.glob("*.idx"), *(file for file in path.glob("*.json") if _describes_rows(file))])
        if not described:
            raise PipelineError(f"{path}: found no .idx and no header of rows there; give a .bin file with --dtype")
        for file in described:
            yield from _files(file, dtype, ids)
    elif not path.is_file():
        raise PipelineError(f"{path}: no such file or folder")
    elif path.suffix == ".json" and _describes_rows(path):
        header = json.loads(path.read_text(encoding="utf-8"))
        for entry in header["files"]:
            file = path.with_name(entry["name"])
            yield file, _ids(file, header["dtype"])[: entry["rows"] * header["tokens_a_row"]], []
    elif path.suffix in (".bin", ".idx") and path.with_suffix(".idx").is_file():
        yield from _megatron(path.with_suffix(".idx"), ids)
    elif path.suffix == ".bin" and dtype is not None:
        yield path, _ids(path, dtype), []
    else:
        raise PipelineError(
            f"{path}: expected Megatron's .bin beside its .idx, rows with a JSON header, or a .bin with --dtype; MindRecord "
            "cannot be checked itself: check the .bin it was made from"
        )


def _megatron(index: Path, ids: TokenIds) -> Iterator[tuple[Path, npt.NDArray[Any], list[str]]]:
    """Yield the ids of one pair, once the index fits them: needs no mindformers."""
    content = index.read_bytes()
    if len(content) < INDEX_BYTES or not content.startswith(HEADER):
        raise PipelineError(f"{index}: not an index of Megatron's: it begins with {content[:9]!r}, expected {HEADER!r}")
    _, code, count, _ = struct.unpack("<QBQQ", content[9:INDEX_BYTES])
    dtype = next((known for known, number in DTYPE_CODES.items() if number == code), None)
    if dtype is None:
        raise PipelineError(f"{index}: ids of type code {code}; expected int32 (4) or uint16 (8)")
    lengths = np.frombuffer(content, np.int32, count, INDEX_BYTES).astype(np.int64)
    data = index.with_suffix(".bin")
    tokens = _ids(data, dtype)
    if int(lengths.sum()) != tokens.size:
        raise PipelineError(
            f"{index}: documents of {lengths.sum()} tokens, but {data.name} holds {tokens.size}: cut short?"
        )
    last = np.cumsum(lengths)[lengths > 0] - 1
    without = int(np.count_nonzero(tokens[last] != ids.eos))
    problem = f"{without} of {count} documents do not end with eos (id {ids.eos})"
    yield data, tokens, [problem] if without else []


def _ids(file: Path, dtype: Any) -> npt.NDArray[Any]:
    try:
        kind = np.dtype(dtype)
        size = file.stat().st_size
    except TypeError:
        raise PipelineError(f"dtype: {dtype!r}: expected uint16, int32 or uint32") from None
    except FileNotFoundError:
        raise PipelineError(f"{file}: missing beside its index or header") from None
    if size % kind.itemsize:
        raise PipelineError(
            f"{file}: {size} bytes are no whole number of {kind} ids; it is cut short, or of another type"
        )
    return np.memmap(file, kind, "r") if size else np.empty(0, kind)


def _describes_rows(file: Path) -> bool:
    try:
        header = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        return False
    return isinstance(header, dict) and {"dtype", "tokens_a_row", "files"} <= set(header)
