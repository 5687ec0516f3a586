"""Files in the encodings of Chinese text are told apart and decoded to what their author wrote."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.encoding import UnknownEncodingError, decode

SIMPLIFIED = "深度学习框架把模型表示成计算图，再由编译器优化算子与内存。训练时要注意学习率、批量大小与梯度裁剪。"
TRADITIONAL = "深度學習框架把模型表示成計算圖，再由編譯器最佳化運算子與記憶體。訓練時要注意學習率與批量大小。"


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("utf-8", SIMPLIFIED), ("utf-8-sig", SIMPLIFIED), ("gbk", SIMPLIFIED), ("gb18030", SIMPLIFIED + "𠮷"),
     ("big5", TRADITIONAL), ("cp950", TRADITIONAL), ("utf-16", SIMPLIFIED)],
)  # fmt: skip
def test_text_is_decoded_to_itself(encoding: str, text: str) -> None:
    assert decode(text.encode(encoding)).text == text


def test_bytes_of_no_encoding_are_refused_with_their_place() -> None:
    with pytest.raises(UnknownEncodingError, match="byte 6 "):
        decode("中文".encode() + b"\xff\xff" + b"abc")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1))
@example("0000\U00043a40")  # also valid UTF-16, of plausible characters
def test_utf8_is_never_taken_for_anything_else(text: str) -> None:
    if not text.startswith("\ufeff"):
        assert decode(text.encode()).text == text


def test_real_files_are_decoded_as_their_twins_in_utf8(corpus: Path) -> None:
    folder = corpus / "encodings"
    twins = [(folder / twin.name.split(".")[0], twin) for twin in sorted((folder / "expected_utf8").iterdir())]
    # HZ is seven-bit and reads as ASCII; HKSCS adds Hong Kong's characters, which cp950 lacks. Neither is promised.
    compared = [(file.with_suffix(".txt"), twin) for file, twin in twins if not file.name.endswith(("_hz", "hkscs"))]
    assert len(compared) >= 13
    for file, twin in compared:
        assert decode(file.read_bytes()).text == twin.read_text(encoding="utf-8"), file.name
