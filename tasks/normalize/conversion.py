"""Traditional to simplified Chinese, by OpenCC, only where the script is traditional.

OpenCC changes simplified text too (昇腾 becomes 升腾), so a line is converted only if it has more characters that are
traditional alone than characters that are simplified alone, and never inside protected words. Both sets are read off
OpenCC itself; a simplified character that Big5 also has (后, 里, 台) speaks for neither.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import opencc

from configs.errors import PipelineError

SHIPPED_WORDS = Path(__file__).with_name("protected_words.txt")
HAN = [chr(code) for code in (*range(0x3400, 0x4DC0), *range(0x4E00, 0xA000))]


@cache
def _scripts() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns for characters that are traditional alone, and that are simplified alone."""
    to_simplified, to_traditional = opencc.OpenCC("t2s"), opencc.OpenCC("s2t")
    traditional = {han for han in HAN if to_simplified.convert(han) != han}
    simplified = {han for han in HAN if to_traditional.convert(han) != han and not _in_big5(han)} - traditional
    return re.compile(f"[{''.join(sorted(traditional))}]"), re.compile(f"[{''.join(sorted(simplified))}]")


def _in_big5(han: str) -> bool:
    return han.encode("cp950", errors="ignore") != b""


def is_traditional(line: str) -> bool:
    """Tell whether a line is in traditional script; one with neither kind of character is not."""
    traditional, simplified = _scripts()
    found = len(traditional.findall(line))
    return found > 0 and found > len(simplified.findall(line))


def read_protected_words(file: Path) -> dict[str, str]:
    """Return word to what it becomes, from a file with one word a line (and what it becomes, if something else).

    Raises:
        PipelineError: the file is missing, not UTF-8, or a line has more than two words.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"normalize.protected_words: {file}: cannot be read as UTF-8 text ({error})") from None
    words = {}
    for number, line in enumerate(lines, start=1):
        parts = line.partition("#")[0].split()
        if len(parts) > 2:
            raise PipelineError(f"{file}: line {number}: found {len(parts)} words, expected one, and what it becomes")
        if parts:
            words[parts[0]] = parts[-1]
    return words


@cache
def converter(configuration: str, protected_words: str | None) -> Callable[[str], str]:
    """Return the function that converts text line by line. `protected_words` names a file that adds to the shipped one."""
    convert = opencc.OpenCC(configuration).convert
    words = read_protected_words(SHIPPED_WORDS) | (
        read_protected_words(Path(protected_words)) if protected_words else {}
    )
    protected = re.compile("|".join(sorted(map(re.escape, words), key=len, reverse=True)))
    traditional, _ = _scripts()

    def convert_line(line: str) -> str:
        if not is_traditional(protected.sub("", line)):
            return line
        converted, position = [], 0
        for match in protected.finditer(line):
            converted += [convert(line[position : match.start()]), words[match.group()]]
            position = match.end()
        return "".join([*converted, convert(line[position:])])

    def convert_text(text: str) -> str:
        if traditional.search(text) is None:
            return text
        return "\n".join(convert_line(line) for line in text.split("\n"))

    return convert_text
