"""Dedup keeps the first of what repeats, and equals datasketch and brute force."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks import dedup, normalize
from tasks.dedup.corpus import DECISIONS, JACCARD, KEPT, SAME_TEXT, STAYS
from tasks.dedup.pairs import SIMILAR, jaccard
from tasks.dedup.paragraphs import hash_paragraphs
from tasks.dedup.resolve import decide
from tasks.dedup.shingles import Shingles, shingle, texts_of
from tasks.documents import read_table
from tests.conftest import SAMPLE, MakeConfig, build_chain, removed_by

TEXT = "用最小哈希估计两个文档的相似度，再用分带把候选对的数目降下来。"


def write(raw: Path, **texts: str) -> None:
    for name, text in texts.items():
        (raw / f"{name}.txt").write_text(text, encoding="utf-8")


def rows(paths: list[Path]) -> list[dict[str, Any]]:
    return [row for path in paths for row in read_table(path).to_pylist()]


def test_resolution_is_a_star_not_a_component() -> None:
    """A ~ B ~ C, but A and C differ: B goes because A stays; C stays because B went."""
    shingles = [np.arange(first, first + 100).astype(np.uint64) for first in (0, 5, 10)]
    similar = [(j, i, jaccard(shingles[i], shingles[j]), JACCARD) for i, j in combinations(range(3), 2)]
    assert [round(pair[2], 3) for pair in similar] == [0.905, 0.818, 0.905]
    decisions = np.zeros(3, DECISIONS)
    decisions["duplicate_of"] = KEPT
    pairs = np.array(sorted(similar), SIMILAR)
    decide(decisions, np.arange(3, dtype=np.uint32), (0, 3), pairs, 0.85)
    assert decisions["duplicate_of"].tolist() == [KEPT, 0, KEPT]


def test_a_copy_of_a_document_that_went_repeats_what_that_one_repeats() -> None:
    decisions = np.zeros(3, DECISIONS)
    decisions["duplicate_of"] = KEPT
    pairs = np.array([(1, 0, 0.9, JACCARD)], SIMILAR)
    decide(decisions, np.array([0, 1, 1], np.uint32), (0, 3), pairs, 0.8)
    assert decisions["duplicate_of"].tolist() == [KEPT, 0, 0]
    assert decisions["step"].tolist() == [STAYS, JACCARD, SAME_TEXT]
    assert decisions["similarity"][2] == np.float32(0.9)


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
    _, artifact = build_chain(make_config(dedup={"min_characters_left": 0}), normalize.STAGE, dedup.STAGE)
    first, second = rows(artifact.shards)
    assert notice in first["text"]
    assert second["text"] == "乙文讲张量并行的切分。\n\n先按列再按行。"
    (removed,) = rows(artifact.paths(artifact.manifest.removed))
    assert (removed["scope"], removed["duplicate_of"], removed["text"].strip()) == ("paragraph", "raw/a.txt", notice)


def test_code_tables_and_entries_of_lists_are_never_taken_for_repeated_paragraphs() -> None:
    code, entry = f"```python\n{'x = 1  # 很长的一行代码' * 10}\n```", f"- {'参数的说明' * 20}"
    text = f"{code}\n\n{entry}\n\n| 列 |\n| - |\n| {'值' * 80} |\n\n{'普通段落' * 20}"
    data = text.encode()
    found = hash_paragraphs(texts_of(pa.chunked_array([[text]])), ["s"], 60, 8)
    assert [data[row["start"] : row["end"]].decode() for row in found] == ["普通段落" * 20]


def test_the_first_documents_keep_a_repeated_paragraph(make_config: MakeConfig, raw: Path) -> None:
    notice = "本手册随发行版一同提供，任何人都可以复制和修改，只是须在文首写明改动的日期与内容，并保留这一段话；" * 2
    write(raw, **{name: f"{name}：这一篇的正文各不相同，讲第{name}件事。\n\n{notice}" for name in "abcd"})
    config = make_config(dedup={"paragraph_copies": 2, "min_characters_left": 0, "threshold": 0.99})
    _, artifact = build_chain(config, normalize.STAGE, dedup.STAGE)
    assert [notice in row["text"] for row in rows(artifact.shards)] == [True, True, False, False]


def test_a_source_s_footer_goes_from_the_eleventh_document_on(make_config: MakeConfig, raw: Path) -> None:
    """Short paragraphs at the edge alone, and counted by source: another source's ten are its own."""
    topics = ("数据", "张量", "流水线", "专家", "序列", "优化器", "词表", "归约", "检查点", "学习率", "损失", "梯度")
    other = raw.parent / "other"
    other.mkdir()
    for number in range(len(topics)):
        text = f"{topics[number] * 25}。\n\n上一篇 返回目录 下一篇"
        (raw / f"{number:02d}.txt").write_text(text, encoding="utf-8")
        if number < 10:
            (other / f"{number:02d}.txt").write_text(
                text.replace(topics[number], f"{topics[number]}之别"), encoding="utf-8"
            )
    inputs = [{"path": str(folder), "source": folder.name} for folder in (raw, other)]
    _, artifact = build_chain(make_config(inputs=inputs), normalize.STAGE, dedup.STAGE)
    assert ["返回目录" in row["text"] for row in rows(artifact.shards)] == [True] * 10 + [False] * 2 + [True] * 10
    removed = rows(artifact.paths(artifact.manifest.removed))
    assert [(row["rule"], row["id"], row["duplicate_of"], row["text"]) for row in removed] == [
        ("repeated_edge", f"raw/{number}.txt", "raw/00.txt", "上一篇 返回目录 下一篇") for number in (10, 11)
    ]


def test_a_document_that_loses_all_but_a_few_words_goes(make_config: MakeConfig, raw: Path) -> None:
    passage = (
        "张量并行把一层的权重按列切开，每张卡只算自己那一份，最后用一次归约把结果拼起来，通信量与批大小成正比。" * 2
    )
    write(raw, a=f"甲文先说别的。\n\n{passage}\n\n然后讲了许多自己的话，足够成篇。", b=f"转载如下。\n\n{passage}")
    _, artifact = build_chain(make_config(dedup={"threshold": 0.95}), normalize.STAGE, dedup.STAGE)
    assert [row["id"] for row in rows(artifact.shards)] == ["raw/a.txt"]
    removed = {(row["scope"], row["rule"]): row for row in rows(artifact.paths(artifact.manifest.removed))}
    paragraph = removed["paragraph", "repeated_paragraph"]
    rest = removed["document", "min_characters_left"]
    assert (rest["score"], rest["threshold"]) == (5, 40)
    assert rest["text"] + paragraph["text"] == f"转载如下。\n\n{passage}"


def test_documents_shorter_than_a_shingle_go_only_as_exact_copies(make_config: MakeConfig, raw: Path) -> None:
    write(raw, a="猫", b="狗", c="猫", d="我喜欢健身", e="我喜欢普洱茶", f="。", g="！")
    _, artifact = build_chain(make_config(), normalize.STAGE, dedup.STAGE)
    assert [row["id"] for row in rows(artifact.shards)] == [f"raw/{name}.txt" for name in "abdefg"]


def test_a_taken_down_document_goes_and_what_repeats_it(
    make_config: MakeConfig, raw: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = "".join(f"第{number}句讲的是第{number}条规则，它与别的规则都不一样。" for number in range(30))
    notice = (
        "这一段话在两篇文章里都有，它说的是文章可以转载，只要注明出处，并且不改动其中的任何一个字，也不删去这一段。" * 2
    )
    write(raw, a=f"{body}\n\n{notice}", b=f"{body.replace('第7条', '第七条')}\n\n{notice}", c=f"另一篇。\n\n{notice}")
    listed = tmp_path / "takedown.txt"
    listed.write_text("raw/a.txt\n\nraw/unknown.txt\n", encoding="utf-8")
    _, artifact = build_chain(make_config(dedup={"takedown_file": str(listed)}), normalize.STAGE, dedup.STAGE)
    (kept,) = rows(artifact.shards)
    assert kept["text"] == f"另一篇。\n\n{notice}"
    assert removed_by(artifact.manifest) == {"takedown": 1, "near_duplicate": 1}
    assert artifact.manifest.stats["takedown_ids_found"] == 1
    assert "1 of the 2 ids in dedup.takedown_file are not in the corpus" in caplog.text


def test_more_duplicates_than_a_corpus_has_raise_an_alarm(
    make_config: MakeConfig, raw: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(raw, **{f"page{number}": TEXT * 3 for number in range(10)})
    build_chain(make_config(), normalize.STAGE, dedup.STAGE)
    assert "9 of 10 documents repeat another" in caplog.text


def test_the_report_shows_clusters_and_pairs_near_the_threshold(make_config: MakeConfig, raw: Path) -> None:
    sentences = [f"第{number}句讲的是第{number}条规则，它与别的规则都不一样。" for number in range(40)]
    changed = [*sentences[:36], *(f"改写后的第{number}句，换了一个说法来讲同样的意思。" for number in range(4))]
    write(raw, a="".join(sentences), b="".join(sentences), c="".join(changed), d="".join(sentences[:20]))
    _, artifact = build_chain(make_config(dedup={"verify": "exact"}), normalize.STAGE, dedup.STAGE)
    report = json.loads((artifact.folder / "report.json").read_text(encoding="utf-8"))
    assert report["clusters"] == [{"kept": "raw/a.txt", "removed": 2}]
    (pair,) = report["pairs_near_threshold"]
    assert (pair["earlier"], pair["later"]) == ("raw/a.txt", "raw/c.txt")
    exact = jaccard(*(shingle("".join(text), "mixed", 5) for text in (sentences, changed)))
    assert pair["jaccard"] == round(exact, 4)
    assert any("改写后的" in difference["later"] for difference in pair["differences"])
    counts = {name: artifact.manifest.stats[f"removed_at_threshold:{name}"] for name in ("0.70", "0.80", "0.90")}
    assert counts == {"0.70": 2, "0.80": 2, "0.90": 1}


def test_a_million_copies_are_no_million_comparisons() -> None:
    """One text a million times: one document and no pair, for copies are set apart before the bands are compared."""
    first_copy = np.zeros(10**6, np.uint32)
    decisions = np.zeros(10**6, DECISIONS)
    decisions["duplicate_of"] = KEPT
    decide(decisions, first_copy, (0, 10**6), np.empty(0, SIMILAR), 0.8)
    assert decisions["duplicate_of"][0] == KEPT
    assert (decisions["duplicate_of"][1:] == 0).all()


def test_real_pages_on_one_template_stay(make_config: MakeConfig, corpus: Path) -> None:
    config = make_config(
        inputs=[{"path": str(corpus / "near_dups" / "cpp_errors_zh_tw_template.jsonl"), "source": "s"}]
    )
    given, artifact = build_chain(config, normalize.STAGE, dedup.STAGE)
    assert given.manifest.stats["documents_kept"] == 120
    assert artifact.manifest.stats["documents_kept"] == 120


@pytest.mark.parametrize(
    "file",
    ["near_dups/mindspore_versions.jsonl.gz", "near_dups/paddle_versions.parquet", "papers/csl_abstracts.parquet"],
)
def test_real_versions_go_as_their_exact_similarity_says(make_config: MakeConfig, corpus: Path, file: str) -> None:
    """Each against all before it that stay, by brute force."""
    config = make_config(inputs=[{"path": str(corpus / file), "source": "s"}], dedup={"verify": "exact"})
    given, artifact = build_chain(config, normalize.STAGE, dedup.STAGE)
    gone = {
        row["id"]: row["duplicate_of"]
        for row in rows(artifact.paths(artifact.manifest.removed))
        if row["rule"].endswith("_duplicate")
    }
    kept: dict[str, Shingles] = {}
    missed = []
    for row in rows(given.shards):
        shingles = shingle(row["text"], "mixed", 5)
        if row["id"] in gone:
            assert jaccard(shingles, kept[gone[row["id"]]]) >= 0.8
            continue
        missed += [similar for other in kept.values() if (similar := jaccard(shingles, other)) >= 0.8]
        kept[row["id"]] = shingles
    assert len(gone) > 20
    assert len(missed) <= 0.05 * len(gone)  # 16 bands of 8 rows find 95% of the pairs at 0.80, 99% at 0.85
    assert max(missed, default=0) < 0.85


def test_an_abstract_with_and_without_its_title_is_one(make_config: MakeConfig, corpus: Path) -> None:
    """420 abstracts stand twice. Where one is so short that its title is over a fifth of it, both stay."""
    config = make_config(inputs=[{"path": str(corpus / "papers" / "csl_abstracts.parquet"), "source": "s"}])
    given, artifact = build_chain(config, normalize.STAGE, dedup.STAGE)
    removed = [row for row in rows(artifact.paths(artifact.manifest.removed)) if row["scope"] == "document"]
    assert 395 <= len(removed) <= 420
    texts = {row["id"]: row["text"] for row in rows(given.shards)}
    assert all(texts[row["duplicate_of"]][:30] in row["text"] for row in removed)


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
