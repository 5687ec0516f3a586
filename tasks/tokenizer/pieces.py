"""How vocabularies spell the bytes of a token."""

BLANK = "▁"


def _symbols_of_bytes() -> dict[str, int]:
    """Return the characters that byte-level vocabularies are spelt in: GPT-2's, printable bytes as themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTE_OF_SYMBOL = _symbols_of_bytes()


def byte_piece(name: str) -> bytes:
    try:
        return bytes(BYTE_OF_SYMBOL[symbol] for symbol in name)
    except KeyError:  # an added token of blanks is spelt as it is
        return name.encode()


def text_piece(name: str) -> bytes:
    """Return the bytes of a piece of a sentencepiece-like vocabulary: ▁ is a blank, <0x0A> one byte."""
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        return bytes([int(name[3:5], 16)])
    return name.replace(BLANK, " ").encode()
