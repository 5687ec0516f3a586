"""The list of documents that somebody wants out of the corpus."""

from pathlib import Path

import xxhash

from configs.errors import PipelineError


def takedown_ids(file: str | None) -> tuple[int, ...]:
    """Return the hashes of the ids in a text file, one a line.

    Raises:
        PipelineError: the file is no UTF-8 text.
    """
    if file is None:
        return ()
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise PipelineError(f"dedup.takedown_file: {file}: cannot be read as UTF-8 text ({error})") from None
    return tuple(sorted({xxhash.xxh3_64_intdigest(line.strip().encode()) for line in lines if line.strip()}))
