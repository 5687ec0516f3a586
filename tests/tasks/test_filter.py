"""The filter keeps good technical prose and names the rule by which noise goes."""

import html
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.filters import TECHNICAL
from configs.schema import FilterConfig, NormalizeConfig
from tasks import dedup, filter, normalize
from tasks.blocks import scan_blocks, split_blocks
from tasks.code_points import code_points
from tasks.documents import read_table
from tasks.filter import judge, lines, measures, page, scores
from tasks.filter.lines import ALONE, IN_A_MENU, judge_line
from tasks.filter.personal import mask_personal_data
from tasks.normalize.text import normalize_text
from tasks.readers import read_records
from tasks.readers.html import main_text
from tasks.readers.records import Content, Limits, Record
from tests.conftest import SAMPLE, BenchRecords, MakeConfig, build_chain, removed_by

DEFAULT = FilterConfig.model_validate({})
KEEP_ALL_DOCUMENTS = FilterConfig.model_validate({"modes": dict.fromkeys(TECHNICAL, "off")})
PROSE = "梯度裁剪把过大的梯度按范数缩小，使训练不致发散。裁剪的阈值常取一，太小会拖慢收敛，太大则失去作用。"


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("首页 | 产品 | 文档 | 下载 | 登录", "navigation_line"),
        ("首页 > 文档 > 分布式训练", "navigation_line"),
        ("上一篇：数据并行　下一篇：张量并行", "navigation_line"),
        ("返回顶部", "navigation_line"),
        ("分享到：朋友圈 微博", "navigation_line"),
        ("版权所有 © 2026 保留一切权利", "furniture_line"),
        ("本网站使用 Cookie 来改善体验", "furniture_line"),
        ("登录后查看全部内容", "furniture_line"),
        ("您还未登录，请先登录", "furniture_line"),
        ("阅读 1024", "furniture_line"),
        ("上一页 1 2 3 4 5 下一页 共 10 页 跳转到 第 页 确定", "navigation_line"),
        ("编辑此页", "navigation_line"),
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


def measure(text: str) -> measures.Measures:
    codes = code_points(text)
    return measures.measure(text, codes, scan_blocks(codes))


def noise_lines(text: str) -> list[lines.NoiseLine]:
    codes = code_points(text)
    return lines.noise_lines(text, codes, scan_blocks(codes), DEFAULT)


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
    assert judge(PROSE, FilterConfig.model_validate({"min_characters": 10})).verdict is None
    verdict = judge(PROSE, FilterConfig.model_validate({"min_characters": 500})).verdict
    assert verdict is not None
    assert verdict.score == len(PROSE)


def test_measures() -> None:
    assert measure("学习 learning `code` $x$ https://example.com").han_share == 2 / 3
    assert measure("123").han_share == 0
    assert measure("一二三，四五六七\n\n八九").characters_without_punctuation == 4
    assert measure("- 一二\n- 三四五").characters_without_punctuation == 3
    assert measure("ABCDEF 一二").characters_without_punctuation == 3  # a Latin word counts as one
    assert measure("好锟斤拷好").garbled_share == 3 / 5
    assert measure("テキスト和文字").kana_share == 4 / 7
    assert measure("价格12元，共3件。").digit_share == 3 / 10
    assert measure("见https://a.cn/bc。").url_share == 15 / 17
    assert measure("[首页](/a) 正文").link_share == 7 / 10
    assert measure("- 一\n- 二\n正文").list_share == 2 / 3
    assert measure("同样一行字。\n同样一行字。\n另外一行字。").repeated_line_share == 1 / 3
    assert measure("未完…\n完了。").ellipsis_line_share == 1 / 2
    assert measure("有标点。\n没有标点").punctuated_line_share == 1 / 2
    assert measure("中国人的事和人").stop_words == 4  # 中, 人, 的, 和


def test_repetition_counts_characters_and_words() -> None:
    """Ten units twice: the second ten lie in a run of 10 that stood before; of 20 units 8 are in the most frequent 4."""
    found = measure("一二三四五六七八九十一二三四五六七八九十")
    assert found.repeated_ngram_share == 10 / 20
    assert found.top_ngram_share == 8 / 20
    assert measure("一二三四五六七八九十甲乙丙丁").repeated_ngram_share == 0


def test_code_and_tables_are_set_aside() -> None:
    noise = "```\n%%%%####%%%%\n同样\n同样\n```\n\n| 1 | 2 |\n| 3 | 4 |\n"
    plain, with_code = measure(PROSE), measure(f"{PROSE}\n\n{noise}")
    assert with_code.symbol_share == plain.symbol_share == 0
    assert with_code.digit_share == 0
    assert with_code.repeated_line_share == 0


def test_code_of_restructured_text_is_no_prose() -> None:
    text = f"{PROSE}\n\n.. code-block:: python\n\n    x = 1\n    x = 1\n\n例如::\n\n    首页 | 登录 | 注册\n\n结束。\n"
    assert [block.kind for block in split_blocks(text)] == ["paragraph", "code", "paragraph", "code", "paragraph"]
    assert noise_lines(text) == []


NOISE = (
    """
扫一扫加群|长按识别二维码|关注我们的公众号|搜索视频号|加我微信|添加老师的微信|免费领取|马上报名|限时秒杀|优惠券|满100减20
名额有限|先到先得|错过再等一年|原价199|仅需9元|客服热线|咨询电话|全场五折|转发朋友圈|点个赞再关注|一键三连|广告位招租
威尼斯人|您当前的位置：文档|首页 > 手册|上一篇：甲|相关推荐|猜你喜欢|热门标签：甲|最新评论|分享到微博|版权所有|Edit this page
Copyright © 2026|© 2026 甲|All Rights Reserved|ICP备12345号|京公网安备123号|接受所有 Cookie|请先登录|登录后可见|浏览 123
共 5 页|第 3 页
""".strip()
    .replace("\n", "|")
    .split("|")
)


def test_every_line_that_is_judged_noise_is_found_in_a_text() -> None:
    """The compiled choice of lines must not lose one that the expressions would find."""
    for phrase in (*IN_A_MENU, *ALONE):
        line = f"{phrase} | {phrase}"
        assert judge_line(line) == "navigation_line"
        assert [found.rule for found in noise_lines(f"{PROSE}\n\n{line}\n")] == ["navigation_line"], phrase
    for line in NOISE:
        assert judge_line(line) is not None, line
        assert len(noise_lines(f"{PROSE}\n\n{line}\n")) == 1, line


def test_a_line_goes_from_its_fourth_time_on() -> None:
    line = "这一句话在每一节的开头都要重复一遍，读者早已看过了。"
    text = "\n\n".join(f"{line}\n\n第{number}节的正文。" for number in range(5))
    judgement = judge(text + PROSE, DEFAULT)
    assert judgement.removed_lines == ((line, "repeated_line"),) * 2
    assert judgement.text.count(line) == 3


def test_a_garbled_line_goes_and_the_rest_stays() -> None:
    judgement = judge(f"{PROSE}\n\n\ufffd\ufffd\ufffd好\n\n{PROSE}", DEFAULT)
    assert judgement.removed_lines == (("\ufffd\ufffd\ufffd好", "garbled_line"),)
    assert judgement.verdict is None


def test_a_rule_that_warns_or_is_off_removes_nothing() -> None:
    for mode in ("warn", "off"):
        config = FilterConfig.model_validate({"modes": {"min_characters": mode, "navigation_line": mode}})
        text = "太短。\n返回顶部\n"
        assert judge(text, config) == filter.Judgement(text, (), None)


def test_an_unknown_rule_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"modes: min_length: no such rule; the rules are navigation_line"):
        FilterConfig.model_validate({"modes": {"min_length": "off"}})


def test_presets_give_what_is_left_out() -> None:
    web = FilterConfig.model_validate({"preset": "web", "min_stop_words": 1})
    assert (web.min_characters, web.min_han_share, web.min_stop_words) == (200, 0.5, 1)


def test_english_stays_where_the_configuration_says_so() -> None:
    english = "The optimizer keeps two moments for every weight of the network, which triples what training must hold."
    german = "Der Optimierer merkt sich zwei Momente für jedes Gewicht des Netzes, was den Speicher fast verdreifacht."
    config = FilterConfig.model_validate({"keep_english": True})
    assert judge(english, config).verdict is None
    assert judge(german, config).verdict is not None


def test_personal_data_is_masked_where_its_check_digit_is_right() -> None:
    text = "电话13800138000，身份证11010519491231002X，卡号4111 1111 1111 1111，邮箱a.b@example.com，地址8.8.8.8。"
    masked = ("电话<phone>，身份证<identity>，卡号<card>，邮箱<email>，地址<ip>。", 5)
    assert mask_personal_data(text) == masked
    kept = "编号110105194912310021，卡号4111 1111 1111 1112，本机127.0.0.1与192.168.1.1，版本1.2.3.4.5，时刻20260101123456。"
    assert mask_personal_data(kept) == (kept, 0)
    config = FilterConfig.model_validate({"mask_personal_data": True})
    assert judge(f"{PROSE}联系人13800138000。", config).text == f"{PROSE}联系人<phone>。"


def test_documents_that_an_evaluation_file_has_go(tmp_path: Path) -> None:
    question = "梯度裁剪把过大的梯度按范数缩小，使训练不致发散，这句话对不对？"
    (tmp_path / "evaluation.jsonl").write_text(json.dumps({"question": question}), encoding="utf-8")
    config = FilterConfig.model_validate({"evaluation_files": [str(tmp_path / "evaluation.jsonl")]})
    verdict = judge(PROSE, config).verdict
    assert verdict is not None
    assert (verdict.rule, verdict.threshold) == ("max_contaminated_ngrams", 0)
    assert (
        judge(
            "完全不同的一段话，讲的是流水线并行如何把层切到不同的设备上，以及气泡由什么决定，与题目没有关系。", config
        ).verdict
        is None
    )


def test_other_thresholds_decide_from_the_recorded_scores(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [{"path": str(SAMPLE / "troubles"), "source": "troubles"}]
    *_, first = build_chain(make_config(inputs=inputs), normalize.STAGE, dedup.STAGE, filter.STAGE)

    def never(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(scores, "measure", never)
    stricter = make_config(inputs=inputs, filter={"min_characters": 400})
    *_, second = build_chain(stricter, normalize.STAGE, dedup.STAGE, filter.STAGE)
    assert removed_by(second.manifest)["min_characters"] > removed_by(first.manifest)["min_characters"] == 1


def test_stats_tell_what_each_rule_finds_alone_and_together_with_samples(make_config: MakeConfig, raw: Path) -> None:
    (raw / "both.txt").write_text("Too short.", encoding="utf-8")
    (raw / "short.txt").write_text("太短。", encoding="utf-8")
    *_, artifact = build_chain(make_config(), normalize.STAGE, dedup.STAGE, filter.STAGE)
    stats = artifact.manifest.stats
    assert (stats["hits:min_characters"], stats["hits_alone:min_characters"]) == (2, 1)
    assert (stats["hits:min_han_share"], stats.get("hits_alone:min_han_share", 0)) == (1, 0)
    assert stats["samples"] == {"min_characters": ["raw/both.txt: Too short.", "raw/short.txt: 太短。"]}
    removed = {row["id"]: row["detail"] for row in read_table(artifact.paths(artifact.manifest.removed)[0]).to_pylist()}
    assert removed == {"raw/both.txt": "also min_han_share", "raw/short.txt": None}


NO_PROSE_BY_NAME = re.compile(r"/(?:api|_templates)/|index|_list|\.ipynb")
NO_PROSE_BY_TEXT = re.compile(r"\.\. (?:toctree|autosummary|msplatformautosummary)::")


@pytest.mark.parametrize(("source", "most"), [("papers_zh", 0.01), ("mindspore_zh", 0.03), ("paddle_zh", 0.03)])
def test_good_documents_stay(bench_records: BenchRecords, source: str, most: float) -> None:
    """Lists of links and names, templates and notebooks in JSON are set aside: they are no prose."""
    removed = []
    records = [
        record
        for record in bench_records(source, 1500)
        if not NO_PROSE_BY_NAME.search(record["id"]) and not NO_PROSE_BY_TEXT.search(record["text"])
    ]
    for record in records:
        verdict = judge(normalize_text(record["text"], NormalizeConfig()), DEFAULT).verdict
        removed += [(record["id"], verdict)] if verdict else []
    assert len(records) > 400
    assert len(removed) < most * len(records), removed


def test_ascii_punctuation_divides_too() -> None:
    """Chinese journals print `,` and `.`; a rule that knows only ，。 drops good abstracts."""
    assert (
        measure("本文研究梯度压缩的收敛性,给出误差上界,并在三个任务上验证. " * 20).characters_without_punctuation == 12
    )


def test_tables_of_contents_go_and_the_words_around_them_stay() -> None:
    text = f"{PROSE}\n\n.. toctree::\n   :maxdepth: 1\n\n   install\n   usage\n\n{PROSE}\n"
    judgement = judge(text, DEFAULT)
    assert [line for line, _ in judgement.removed_lines] == [".. toctree::", ":maxdepth: 1", "install", "usage"]
    assert judgement.text.split() == [PROSE, PROSE]
    assert {rule for _, rule in judgement.removed_lines} == {"contents_line"}


def read_texts(file: Path) -> list[str]:
    content = Content(str(file), lambda: file.open("rb"), "text", "id", Limits(2**26, 2**30))
    return [
        normalize_text(record.text, NormalizeConfig()) for record in read_records(content) if isinstance(record, Record)
    ]


def test_real_documents_stay_and_real_noise_goes_or_is_stripped(corpus: Path) -> None:
    good = [file for file in sorted((corpus / "simplified").iterdir()) if file.suffix in (".md", ".rst")]
    assert {
        file.name: verdict for file in good for text in read_texts(file) if (verdict := judge(text, DEFAULT).verdict)
    } == {}
    noise = corpus / "noise"
    found = {file.name: judge(text, DEFAULT) for file in sorted(noise.iterdir()) for text in read_texts(file)}
    rules = {name: judgement.verdict.rule for name, judgement in found.items() if judgement.verdict}
    assert rules == {
        "english_SequentialSampler.md": "min_han_share",
        "english_distributed_parallel.md": "min_han_share",
        "english_mindformers_contribution.md": "min_han_share",
        "menu_golden_stick_index.rst": "min_characters",
        "wordlist_no_punctuation.txt": "max_characters_without_punctuation",
    }
    for name in (
        "menu_devtoolkit_index.rst",
        "menu_federated_index.rst",
        "menu_graphlearning_index.rst",
        "menu_hub_index.rst",
    ):
        assert len(found[name].removed_lines) >= 8
        assert "toctree::" not in found[name].text
        assert "代码仓地址" in found[name].text
    assert "获取当前线程数设置" in found["menu_api_index.rst"].text  # a table with words of its own: only its menu goes
    assert len(found["menu_api_index.rst"].removed_lines) == 32
    promotion = found["mall_README_promo.md"]
    assert [rule for _, rule in promotion.removed_lines] == ["advertisement_line", "furniture_line"]


def test_pages_lose_their_menus_and_keep_their_body(bench_records: BenchRecords) -> None:
    """Menus are the links of classes that say so; the body is every paragraph of 20 characters inside <article>."""
    pages = with_menu = paragraphs = kept = 0
    for record in bench_records("rocketmq_html", 150):
        main = main_text(record["text"])
        if main is None:
            continue
        text = judge(normalize_text(main, NormalizeConfig()), DEFAULT).text
        lines = {" ".join(line.strip("-*# ").split()) for line in text.split("\n")}
        headings = set(plain(HEADING.findall(record["text"])))
        menu = set(plain(MENU_LINK.findall(record["text"]))) - headings - {""}
        pages += 1
        with_menu += bool(menu & lines) or "Apache Software Foundation. Licensed" in text
        body = ARTICLE.search(record["text"])
        wanted = [part for part in plain(PARAGRAPH.findall(body.group())) if len(part) > 20] if body else []
        paragraphs += len(wanted)
        kept += sum(bare(normalize_text(part, NormalizeConfig())) in bare(text) for part in wanted)
    assert (pages > 100, paragraphs > 1000) == (True, True)
    assert with_menu <= 0.02 * pages
    assert kept >= 0.98 * paragraphs


MENU_LINK = re.compile(r'<a[^>]*class="[^"]*(?:navbar__|menu__link|footer__link)[^"]*"[^>]*>(.*?)</a>')
HEADING = re.compile(r"<h[1-6][^>]*>(.*?)</h[1-6]>", re.DOTALL)
ARTICLE = re.compile(r"<article.*?</article>", re.DOTALL)
PARAGRAPH = re.compile(r"<p>(.*?)</p>", re.DOTALL)


def plain(fragments: list[str]) -> list[str]:
    texts = (html.unescape(re.sub(r"<[^>]+>", "", fragment)).replace("\u200b", "") for fragment in fragments)
    return [" ".join(text.split()) for text in texts]


def bare(text: str) -> str:
    """Return a text without blanks and the marks of Markdown."""
    return re.sub(r"[\s*`_#\\|-]", "", text)


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


LONG_LINE = "重复的一行，有二十个字以上，所以会被数到第四次。"
LINES = st.sampled_from(
    [
        "首页 | 登录 | 注册",
        "扫码关注公众号",
        "版权所有",
        PROSE,
        "```",
        "| 表 | 格 |",
        "",
        "\ufffd\ufffd\ufffd",
        LONG_LINE,
    ]
)


@settings(deadline=None, max_examples=200)
@given(st.lists(LINES, max_size=20))
def test_every_line_stays_or_is_listed(lines: list[str]) -> None:
    judgement = judge("\n".join(lines), KEEP_ALL_DOCUMENTS)
    found = [line for line in judgement.text.split("\n") if line] + [line for line, _ in judgement.removed_lines]
    assert sorted(found) == sorted(line for line in lines if line)


def test_the_page_of_rules_is_the_code_s() -> None:
    """When this fails: `python -m tasks.filter.page`."""
    assert page.PAGE.read_text(encoding="utf-8") == page.page()
