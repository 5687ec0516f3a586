"""The filter keeps good technical prose and names the rule by which noise goes."""

from pathlib import Path

import pytest

from configs.schema import FilterConfig, NormalizeConfig
from tasks import dedup, filter, normalize
from tasks.documents import read_table
from tasks.encoding import decode
from tasks.filter import judge
from tasks.filter.lines import judge_line
from tasks.filter.rules import characters_without_punctuation, garbled_share, han_share
from tasks.normalize.text import normalize_text
from tests.conftest import SAMPLE, MakeConfig, build_chain, removed_by

DEFAULT = FilterConfig()
PROSE = "梯度裁剪把过大的梯度按范数缩小，使训练不致发散。裁剪的阈值常取一，太小会拖慢收敛，太大则失去作用。"


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("首页 | 产品 | 文档 | 下载 | 登录", "navigation_line"),
        ("首页 > 文档 > 分布式训练", "navigation_line"),
        ("上一篇：数据并行　下一篇：张量并行", "navigation_line"),
        ("返回顶部", "navigation_line"),
        ("分享到：朋友圈 微博", "navigation_line"),
        ("版权所有 © 2026 保留一切权利", "navigation_line"),
        ("扫码关注公众号，免费领取资料", "advertisement_line"),
        ("限时优惠，名额有限，立即抢购！", "advertisement_line"),
        ("[点击领取](https://example.com)", "advertisement_line"),
        ("学习率先上升后下降。", None),
        ("- 注册", None),
        ("文档 | 版本 | 说明 | 作者 | 日期", None),
        ("过滤规则会去掉“点击领取”“限时优惠”之类的广告行。", None),
        (
            "用户扫码登录后，系统向设备签发一枚令牌，令牌在一小时之后过期；客户端应当在过期之前换取新的令牌，否则请求会被拒绝。",
            None,
        ),
    ],
)
def test_lines_are_judged_whole(line: str, rule: str | None) -> None:
    assert judge_line(line) == rule


def test_noise_lines_go_and_the_document_stays() -> None:
    judgement = judge(f"# 梯度裁剪\n\n{PROSE}\n\n返回顶部\n\n{PROSE}\n", DEFAULT)
    assert judgement.verdict is None
    assert judgement.removed_lines == (("返回顶部", "navigation_line"),)
    assert "返回顶部" not in judgement.text
    assert judgement.text.count(PROSE) == 2


def test_lines_of_code_are_never_judged() -> None:
    text = f"{PROSE}\n\n```\n首页 | 登录 | 注册\n扫码关注公众号\n```\n"
    assert judge(text, DEFAULT) == filter.Judgement(text, (), None)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("太短。", "min_characters"),
        ("The optimizer keeps two moments for every weight of the network. " * 5, "min_han_share"),
        ("首页 登录 注册\n返回顶部\n扫码关注公众号\n" + PROSE, "max_noise_line_share"),
        ("张量 算子 图 编译 " * 60, "max_characters_without_punctuation"),
        (PROSE * 2 + "锟斤拷锟斤拷\ufffd\ufffd", "max_garbled_share"),
    ],
)
def test_each_rule_is_named_with_score_and_threshold(text: str, rule: str) -> None:
    verdict = judge(text, DEFAULT).verdict
    assert verdict is not None
    assert verdict.rule == rule
    assert verdict.threshold == getattr(DEFAULT, rule)


def test_a_threshold_moves_the_line() -> None:
    assert judge(PROSE, FilterConfig(min_characters=10)).verdict is None
    verdict = judge(PROSE, FilterConfig(min_characters=500)).verdict
    assert verdict is not None
    assert verdict.score == len(PROSE)


def test_measures() -> None:
    assert han_share("学习 learning `code` $x$ https://example.com") == 2 / 3
    assert han_share("123") == 0
    assert characters_without_punctuation("一二三，四五六七\n\n八九") == 4
    assert characters_without_punctuation("- 一二\n- 三四五") == 3
    assert characters_without_punctuation("ABCDEF 一二") == 3  # a Latin word counts as one
    assert garbled_share("好锟斤拷好") == 3 / 5


def test_ascii_punctuation_divides_too() -> None:
    """Chinese journals print `,` and `.`; a rule that knows only ，。 drops good abstracts."""
    assert judge("本文研究梯度压缩的收敛性,给出误差上界,并在三个任务上验证. " * 20, DEFAULT).verdict is None


def test_real_documents_stay_and_real_noise_goes(corpus: Path) -> None:
    def rule_of(file: Path) -> str | None:
        verdict = judge(normalize_text(decode(file.read_bytes()).text, NormalizeConfig()), DEFAULT).verdict
        return verdict.rule if verdict else None

    good = [file for file in sorted((corpus / "simplified").iterdir()) if file.suffix in (".md", ".rst")]
    assert {file.name: rule_of(file) for file in good if rule_of(file)} == {}
    noise = corpus / "noise"
    assert rule_of(noise / "wordlist_no_punctuation.txt") == "max_characters_without_punctuation"
    assert {rule_of(file) for file in noise.glob("english_*.md")} == {"min_han_share"}


def test_the_sample_s_noise_goes_by_its_rule(make_config: MakeConfig) -> None:
    config = make_config(inputs=[{"path": str(SAMPLE / "troubles"), "source": "troubles"}])
    *_, artifact = build_chain(config, normalize.STAGE, dedup.STAGE, filter.STAGE)
    paths = artifact.paths(artifact.manifest.removed)
    removed = [row for path in paths for row in read_table(path).to_pylist()]
    assert {row["id"].removeprefix("troubles/"): row["rule"] for row in removed if row["scope"] == "document"} == {
        "navigation.txt": "max_noise_line_share",
        "advertisement.txt": "max_noise_line_share",
        "garbled.txt": "max_garbled_share",
        "word_list.txt": "max_characters_without_punctuation",
        "english_only.txt": "min_han_share",
        "short.txt": "min_characters",
    }
    assert 3 <= sum(row["id"] == "troubles/article_with_ads.md" for row in removed if row["scope"] == "line") <= 5
    assert sum(removed_by(artifact.manifest).values()) == 6
