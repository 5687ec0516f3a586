"""Dedup keeps the first of what repeats, and equals datasketch and brute force."""

import random
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasketch import MinHash
from hypothesis import given
from hypothesis import strategies as st

from tasks import dedup, normalize
from tasks.dedup.pairs import KEPT, bands_and_rows, candidate_pairs, resolve
from tasks.dedup.paragraphs import long_paragraphs
from tasks.dedup.signatures import jaccard, permutations_of, shingle, sign
from tasks.documents import read_table
from tests.conftest import SAMPLE, MakeConfig, build_chain, removed_by

TEXT = "用最小哈希估计两个文档的相似度，再用分带把候选对的数目降下来。"


def write(raw: Path, **texts: str) -> None:
    for name, text in texts.items():
        (raw / f"{name}.txt").write_text(text, encoding="utf-8")


def rows(paths: list[Path]) -> list[dict[str, Any]]:
    return [row for path in paths for row in read_table(path).to_pylist()]


def test_signatures_are_datasketch_s_own() -> None:
    shingles = shingle(TEXT, 5)
    oracle = MinHash(num_perm=128, seed=1, scheme="affine32", hashfunc=lambda value: value)
    for value in (shingles & np.uint64(0xFFFFFFFF)).tolist():
        oracle.update(value)
    assert sign(shingles, permutations_of(128)).tolist() == oracle.digest().tolist()


def test_shingles_ignore_layout_and_punctuation_but_not_words() -> None:
    assert shingle("训练 大模型，需要数据！", 5).tolist() == shingle("训练大模型\n需要数据", 5).tolist()
    assert shingle("Adam 优化器更新权重", 5).tolist() == shingle("adam优化器更新权重", 5).tolist()
    assert shingle("AdamW 优化器更新权重", 5).tolist() != shingle("Adam 优化器更新权重", 5).tolist()
    assert shingle("太短", 5).size == 0


def test_shingles_count_characters_and_words_as_units() -> None:
    assert shingle("一二三四五六", 5).size == 2
    assert shingle("use AdamW and 余弦", 5).size == 1


@given(st.sets(st.integers(0, 50)), st.sets(st.integers(0, 50)))
def test_jaccard_is_that_of_sets(left: set[int], right: set[int]) -> None:
    expected = len(left & right) / len(left | right) if left | right else 0.0
    arrays = [np.array(sorted(values), np.uint64) for values in (left, right)]
    assert jaccard(*arrays) == pytest.approx(expected)


def test_bands_for_the_default_threshold() -> None:
    assert bands_and_rows(0.8, 128) == (16, 8)


def test_resolution_is_a_star_not_a_component() -> None:
    """A ~ B ~ C, but A and C differ: B goes because A stays; C stays because B went."""
    shingles = [np.arange(0, 100), np.arange(5, 105), np.arange(10, 110)]
    arrays = [values.astype(np.uint64) for values in shingles]
    similar = [jaccard(arrays[i], arrays[j]) for i, j in combinations(range(3), 2)]
    assert [round(value, 3) for value in similar] == [0.905, 0.818, 0.905]
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    decisions = resolve(np.arange(3), pairs, arrays.__getitem__, 0.85)
    assert decisions.duplicate_of.tolist() == [KEPT, 0, KEPT]


def test_candidates_find_what_brute_force_finds() -> None:
    """100 texts, each with a variant that differs in some places; 16 bands of 8 miss almost none above 0.9."""
    draw = random.Random(7)
    han = [chr(code) for code in range(0x4E00, 0x4E00 + 2000)]
    originals = ["".join(draw.choices(han, k=400)) for _ in range(100)]
    variants = []
    for text in originals:
        position = draw.randrange(400)
        variants.append(text[:position] + "改" + text[position + 1 :])
    shingles = [shingle(text, 5) for text in originals + variants]
    signatures = np.stack([sign(values, permutations_of(128)) for values in shingles])
    found = {tuple(pair) for pair in candidate_pairs(signatures, np.arange(200), 16, 8).tolist()}
    expected = {(i, j) for i, j in combinations(range(200), 2) if jaccard(shingles[i], shingles[j]) >= 0.9}
    assert len(expected) == 100
    assert len(expected - found) == 0


def test_the_earliest_of_exact_and_near_copies_stays(make_config: MakeConfig, raw: Path) -> None:
    body = "\n\n".join(f"第{number}点：{TEXT}这一段讲的是编号{number}的情形，与别处不同。" for number in range(12))
    write(
        raw,
        a=body,
        b=body.replace("编号7", "序号7"),
        c=body,
        d="完全不同的一篇：流水线并行把层切到不同的设备上，气泡由微批次数目决定。",
    )
    _, artifact = build_chain(make_config(), normalize.STAGE, dedup.STAGE)
    assert [row["id"] for row in rows(artifact.shards)] == ["raw/a.txt", "raw/d.txt"]
    removed = {row["id"]: row for row in rows(artifact.paths(artifact.manifest.removed))}
    assert removed["raw/c.txt"]["rule"] == "exact_duplicate"
    assert removed["raw/b.txt"]["rule"] == "near_duplicate"
    assert {row["duplicate_of"] for row in removed.values()} == {"raw/a.txt"}
    assert 0.8 <= removed["raw/b.txt"]["score"] < 1


def test_a_repeated_paragraph_stays_in_the_first_document_alone(make_config: MakeConfig, raw: Path) -> None:
    notice = (
        "本文档随软件一同发布，读者可以自由复制与修改，但须保留原作者的署名，并且注明所做的改动；"
        "文中的数据只供参考，不作任何保证，也不构成任何承诺。"
    )
    write(
        raw,
        a=f"甲文讲数据并行的通信。\n\n{notice}\n\n梯度求和后除以卡数。",
        b=f"乙文讲张量并行的切分。\n\n{notice}\n\n先按列再按行。",
    )
    _, artifact = build_chain(make_config(), normalize.STAGE, dedup.STAGE)
    first, second = rows(artifact.shards)
    assert notice in first["text"]
    assert second["text"] == "乙文讲张量并行的切分。\n\n先按列再按行。"
    (removed,) = rows(artifact.paths(artifact.manifest.removed))
    assert (removed["scope"], removed["duplicate_of"], removed["text"].strip()) == ("paragraph", "raw/a.txt", notice)


def test_code_and_tables_are_never_taken_for_repeated_paragraphs() -> None:
    text = f"```python\n{'x = 1  # 很长的一行代码' * 10}\n```\n\n| 列 |\n| - |\n| {'值' * 80} |\n\n{'普通段落' * 20}"
    assert [text[block.start : block.end] for block, _ in long_paragraphs(text, 60)] == ["普通段落" * 20]


def test_the_sample_s_versions_and_copies_go(make_config: MakeConfig) -> None:
    folders = ("articles", "troubles")
    config = make_config(inputs=[{"path": str(SAMPLE / name), "source": name} for name in folders])
    _, artifact = build_chain(config, normalize.STAGE, dedup.STAGE)
    removed = rows(artifact.paths(artifact.manifest.removed))
    gone = {row["id"]: row["duplicate_of"] for row in removed if row["scope"] == "document"}
    assert gone == {
        "troubles/exact_copy.txt": "articles/checkpoint_resume.md",
        "troubles/version_2.md": "troubles/version_1.md",
        "troubles/version_3.md": "troubles/version_1.md",
    }
    assert artifact.manifest.stats["paragraphs_removed:repeated_paragraph"] == 5
    assert removed_by(artifact.manifest) == {"exact_duplicate": 1, "near_duplicate": 2}


@pytest.mark.parametrize("shard_bytes", [1, 3000, 10**9])
def test_the_cut_into_shards_decides_nothing(make_config: MakeConfig, shard_bytes: int, tmp_path: Path) -> None:
    config = make_config(
        inputs=[{"path": str(SAMPLE / "troubles"), "source": "troubles"}],
        normalize={"shard_bytes": shard_bytes},
        workspace=str(tmp_path / str(shard_bytes)),
    )
    _, artifact = build_chain(config, normalize.STAGE, dedup.STAGE)
    assert removed_by(artifact.manifest) == {"near_duplicate": 2}
