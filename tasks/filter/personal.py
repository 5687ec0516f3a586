"""Masks personal data: Chinese mobile and identity numbers, bank cards, e-mail and IP addresses. Numbers with a check
digit are masked only when it is right, so that version numbers and hashes stay.
"""

import re

EMAIL = re.compile(r"(?<![\w.+-])[A-Za-z0-9][\w.+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}", re.ASCII)
IDENTITY = re.compile(
    r"(?<![0-9A-Za-z])[1-9]\d{5}(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}[\dXx](?![0-9A-Za-z])"
)
PHONE = re.compile(r"(?<![0-9A-Za-z.])(?:\+?86[- ]?)?1[3-9]\d(?:[- ]?\d{4}){2}(?![0-9A-Za-z.])")
CARD = re.compile(r"(?<![0-9A-Za-z.])[3-6]\d{3}(?:[- ]?\d{4}){2}[- ]?\d{3,7}(?![0-9A-Za-z.])")
ADDRESS = re.compile(r"(?<![0-9.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![0-9.])")

# GB 11643-1999.
IDENTITY_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
IDENTITY_CHECKS = "10X98765432"
# Addresses that name no one: this host, documentation, private networks.
PUBLIC_KNOWLEDGE = re.compile(
    r"0\.|10\.|127\.|169\.254\.|172\.(?:1[6-9]|2\d|3[01])\.|192\.(?:168|0\.[02])\.|198\.51\.100\.|203\.0\.113\."
    r"|22[4-9]\.|2[345]\d\."
)


def mask_personal_data(text: str) -> tuple[str, int]:
    """Return `text` with personal data masked, and how many were."""
    count = 0

    def masked(mask: str, match: re.Match[str], is_one: bool) -> str:
        nonlocal count
        count += is_one
        return mask if is_one else match.group()

    text = EMAIL.sub(lambda match: masked("<email>", match, True), text)
    text = IDENTITY.sub(lambda match: masked("<identity>", match, _is_identity(match.group())), text)
    text = PHONE.sub(lambda match: masked("<phone>", match, True), text)
    text = CARD.sub(lambda match: masked("<card>", match, _passes_luhn(match.group())), text)
    text = ADDRESS.sub(lambda match: masked("<ip>", match, PUBLIC_KNOWLEDGE.match(match.group()) is None), text)
    return text, count


def _is_identity(number: str) -> bool:
    total = sum(int(digit) * weight for digit, weight in zip(number, IDENTITY_WEIGHTS, strict=False))
    return IDENTITY_CHECKS[total % 11] == number[-1].upper()


def _passes_luhn(number: str) -> bool:
    digits = [int(digit) for digit in reversed(re.sub(r"\D", "", number))]
    doubled = [2 * digit - 9 * (digit > 4) for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
