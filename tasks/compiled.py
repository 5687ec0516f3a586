"""The one way to compile a function: with numba, without its lock on the interpreter, kept on the disk.

numba notices when the file of a compiled function changes, but not when a function that it calls from another file does,
and then goes on with what it compiled before. So what is kept lies under a digest of all code here, and a changed line
anywhere compiles anew (half a minute, once).
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import numba

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return `function` compiled at its first call."""
    result: Callable[Parameters, Result] = numba.njit(cache=True, nogil=True)(function)
    return result


def is_cold() -> bool:
    """Tell whether nothing is kept on the disk yet, so that the first run will compile."""
    return not Path(numba.config.CACHE_DIR).exists()  # type: ignore[attr-defined]


def _cache_folder() -> str:
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return str(caches / "mindpretrain" / digest.hexdigest()[:16])


if "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = _cache_folder()  # type: ignore[attr-defined]
