"""Shingles and signatures, against datasketch and against shingles cut by hand."""

import random
import re
from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.dedup.pairs import jaccard, pairs_of_buckets
from tasks.dedup.shingles import ShingleKind, decode, shingle, texts_of
from tasks.dedup.signatures import Scheme, agreement, band_keys, bands_and_rows, permutations_of, sign_texts
from tests.conftest import BenchRecords

TEXT = "用最小哈希估计两个文档的相似度，再用分带把候选对的数目降下来。"
MASKS = {"affine32": 2**32 - 1, "affine64": 2**64 - 1}


def texts(*values: str):  # type: ignore[no-untyped-def]
    return texts_of(pa.chunked_array([list(values)], pa.string()))


def oracle(text: str, units: int, scheme: Scheme, seed: int) -> list[int]:
    minhash = MinHash(num_perm=128, seed=seed, scheme=scheme, hashfunc=lambda value: value & MASKS[scheme])
    minhash.update_batch(shingle(text, "mixed", units).tolist())
    return [int(value) for value in minhash.digest()]


@pytest.mark.parametrize("scheme", ["affine32", "affine64"])
@pytest.mark.parametrize(("units", "seed"), [(5, 1), (3, 1), (5, 9), (3, 9)])
def test_signatures_are_datasketch_s_own(bench_records: BenchRecords, scheme: Scheme, units: int, seed: int) -> None:
    """On 1,000 real documents."""
    sources = ("mindspore_zh", "papers_zh", "cpp_zh_tw", "mindspore_en", "rocketmq_md")
    documents = [record["text"] for source in sources for record in bench_records(source, 200)]
    assert len(documents) == 1000
    signatures, _ = sign_texts(texts(*documents), True, units, permutations_of(128, scheme, seed))
    for document, signature in zip(documents, signatures, strict=True):
        assert signature.tolist() == oracle(document, units, scheme, seed)


@pytest.mark.parametrize("scheme", ["affine32", "affine64"])
def test_a_written_text_has_datasketch_s_signature(scheme: Scheme) -> None:
    signatures, counts = sign_texts(texts(TEXT, "短", ""), True, 5, permutations_of(128, scheme))
    assert signatures[0].tolist() == oracle(TEXT, 5, scheme, 1)
    assert counts.tolist() == [25, 0, 0]


@given(st.lists(st.text(max_size=200), max_size=5))
@example(["a\x00𠀀é中"])
def test_code_points_are_those_of_the_text(values: list[str]) -> None:
    values = [value.encode(errors="ignore").decode() for value in values]
    given_texts = texts(*values)
    spans = zip(given_texts.offsets[:-1], given_texts.offsets[1:], strict=True)
    decoded = ["".join(map(chr, decode(given_texts.data[start:end]).tolist())) for start, end in spans]
    assert decoded == values


def test_a_slice_of_a_column_is_that_slice() -> None:
    column = pa.chunked_array([["甲乙", "丙"], ["丁"]]).slice(1)
    data, offsets = texts_of(column)
    assert [bytes(data[a:b]).decode() for a, b in pairwise(offsets)] == ["丙", "丁"]


def test_shingles_ignore_layout_and_punctuation_but_not_words() -> None:
    assert (
        shingle("训练 大模型，需要数据！", "mixed", 5).tolist() == shingle("训练大模型\n需要数据", "mixed", 5).tolist()
    )
    assert shingle("Adam 优化器更新权重", "mixed", 5).tolist() == shingle("adam优化器更新权重", "mixed", 5).tolist()
    assert shingle("AdamW 优化器更新权重", "mixed", 5).tolist() != shingle("Adam 优化器更新权重", "mixed", 5).tolist()
    assert shingle("太短", "mixed", 5).size == 0


def test_shingles_count_characters_and_words_as_units() -> None:
    assert shingle("一二三四五六", "mixed", 5).size == 2
    assert shingle("use AdamW and 余弦", "mixed", 5).size == 1


MIXED_UNIT = re.compile(r"[぀-ヿ㐀-䶿一-鿿가-힣]|[A-Za-z0-9]+")


@pytest.mark.parametrize("units", [1, 3, 5])
@given(left=st.text("甲乙丙丁 ，aB1\n", max_size=60), right=st.text("甲乙丙丁 ，aB1\n", max_size=60))
def test_two_texts_share_the_shingles_that_their_units_share(units: int, left: str, right: str) -> None:
    def grams(kind: ShingleKind, text: str) -> set[tuple[str, ...]]:
        cut = MIXED_UNIT.findall(text.lower()) if kind == "mixed" else list(" ".join(text.split()))
        return {tuple(cut[start : start + units]) for start in range(len(cut) - units + 1)}

    for kind in ("mixed", "char"):
        mine = [set(shingle(text, kind, units).tolist()) for text in (left, right)]
        theirs = [grams(kind, text) for text in (left, right)]
        assert [len(found) for found in mine] == [len(found) for found in theirs]
        assert len(mine[0] & mine[1]) == len(theirs[0] & theirs[1])


@given(st.sets(st.integers(0, 50)), st.sets(st.integers(0, 50)))
def test_jaccard_is_that_of_sets(left: set[int], right: set[int]) -> None:
    expected = len(left & right) / len(left | right) if left | right else 0.0
    arrays = [np.array(sorted(values), np.uint64) for values in (left, right)]
    assert jaccard(*arrays) == pytest.approx(expected)


def test_signatures_estimate_the_similarity() -> None:
    """512 permutations have a standard error of 0.02."""
    draw = random.Random(3)
    words = "".join(chr(code) for code in draw.sample(range(0x4E00, 0x9FA5), 1200))
    left, right = words[:1000], words[200:]
    signatures, _ = sign_texts(texts(left, right), True, 5, permutations_of(512))
    exact = jaccard(shingle(left, "mixed", 5), shingle(right, "mixed", 5))
    assert exact == pytest.approx(796 / 1196)
    assert agreement(*signatures) == pytest.approx(exact, abs=0.06)


def test_bands_for_the_default_threshold() -> None:
    assert bands_and_rows(0.8, 128) == (16, 8)


def test_bands_agree_where_their_rows_do() -> None:
    signatures = np.array([[1, 2, 3, 4], [1, 2, 9, 4], [2, 1, 3, 4], [3, 4, 1, 2]], np.uint32)
    keys = band_keys(signatures, 2, 2)
    assert keys.shape == (2, 4)
    assert keys[0, 0] == keys[0, 1] != keys[0, 2]
    assert keys[1, 0] == keys[1, 2] != keys[1, 1]
    assert len({*keys[0].tolist()} & {*keys[1].tolist()}) == 0


def pairs(keys: list[int], documents: list[int], first_new: int = 0, limit: int = 50) -> list[tuple[int, int]]:
    found, _, _ = pairs_of_buckets(
        np.array(keys, np.uint64), np.array(documents, np.uint32), np.uint32(first_new), limit
    )
    return sorted((int(pair) & 0xFFFFFFFF, int(pair) >> 32) for pair in found)


def test_buckets_give_all_their_pairs() -> None:
    assert pairs([7, 7, 7, 8, 9, 9], [0, 2, 5, 1, 3, 4]) == [(0, 2), (0, 5), (2, 5), (3, 4)]
    assert pairs([7, 7, 7, 8, 9, 9], [0, 2, 5, 1, 3, 4], first_new=5) == [(0, 5), (2, 5)]
    assert pairs([], []) == []


def test_a_hot_bucket_costs_no_square_of_its_size() -> None:
    size = 300_000
    keys, documents = np.full(size, 7, np.uint64), np.arange(size, dtype=np.uint32)
    found, hot, hot_documents = pairs_of_buckets(keys, documents, np.uint32(0), 50)
    assert (hot, hot_documents) == (1, size)
    assert found.size == 50 * 49 // 2 + (size - 50) * 8
    partners = sorted(int(pair) & 0xFFFFFFFF for pair in found if int(pair) >> 32 == 500)
    assert partners == [0, 1, 2, 3, 496, 497, 498, 499]


def test_documents_that_come_later_change_no_earlier_pair() -> None:
    before = pairs([7] * 60, list(range(60)), limit=20)
    after = pairs([7] * 90, list(range(90)), limit=20)
    assert before == [pair for pair in after if pair[1] < 60]


def test_candidates_find_what_brute_force_finds() -> None:
    """100 texts, each with a variant that differs in some places; 16 bands of 8 miss almost none above 0.9."""
    draw = random.Random(7)
    han = [chr(code) for code in range(0x4E00, 0x4E00 + 2000)]
    originals = ["".join(draw.choices(han, k=400)) for _ in range(100)]
    variants = []
    for text in originals:
        position = draw.randrange(400)
        variants.append(text[:position] + "改" + text[position + 1 :])
    everything = originals + variants
    keys = band_keys(sign_texts(texts(*everything), True, 5, permutations_of(128))[0], 16, 8)
    found: set[tuple[int, int]] = set()
    for band in keys:
        order = np.argsort(band, kind="stable")
        found |= set(pairs(band[order].tolist(), order.tolist()))
    shingles = [shingle(text, "mixed", 5) for text in everything]
    expected = {(i, j) for i, j in combinations(range(200), 2) if jaccard(shingles[i], shingles[j]) >= 0.9}
    assert len(expected) == 100
    assert len(expected - found) == 0
