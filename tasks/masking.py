"""Takes passwords and keys out of text that people will read."""

import re

HIDDEN = "***"
IN_ADDRESS = re.compile(r"(?<=://)[^/\s:@'\"]+:[^/\s@'\"]+(?=@)")
NAMED = re.compile(
    r"(?i)\b([\w-]*(?:password|passwd|secret|api[_-]?key|access[_-]?key|credential)[\w-]*|(?:[\w-]*[_-])?token)"
    r"(\s*[=:]\s*|\s+)"
    r"(?!\s)([A-Za-z0-9+/_.~-]{8,})"
)
DIGIT = re.compile(r"[0-9]")


def mask(text: str) -> str:
    """Return text with user names and passwords in addresses, and the values of names such as `secret_key`, hidden.

    A value without a digit is left: it is a word, such as the name of a special token.
    """
    hidden = IN_ADDRESS.sub(HIDDEN, text)
    return NAMED.sub(lambda found: f"{found[1]}{found[2]}{HIDDEN if DIGIT.search(found[3]) else found[3]}", hidden)
