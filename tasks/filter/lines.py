"""Which lines of a page are furniture: navigation, notices and advertisement. Only whole, short lines of prose are judged,
so a document that writes about such lines keeps its sentences.

Judging by expressions is slow, so a compiled pass first picks the lines that hold, for their length, enough pairs of
characters from the phrases that are looked for: a few in a hundred.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from configs.schema import FilterConfig
from tasks.blocks import LIST, PARAGRAPH, BlockTable
from tasks.code_points import CodePoints, after_blanks, begins_with, line_end
from tasks.compiled import compiled
from tasks.filter.measures import HAN, LOST, Classes, classes

LineRule = Literal[
    "navigation_line", "contents_line", "furniture_line", "advertisement_line", "repeated_line", "garbled_line"
]


class NoiseLine(NamedTuple):
    """Characters `start` to `end` of a text, newline included, and the rule by which they go."""

    start: int
    end: int
    rule: LineRule


LONGEST_JUDGED = 200
LONGEST_NAVIGATION_ENTRY = 12
LONGEST_FURNITURE = 80
LONGEST_LINE = LONGEST_FURNITURE + 10  # with its list mark and brackets
CHARACTERS_PER_ADVERTISING_PHRASE = 40
SHORTEST_REPEATED, TIMES_KEPT = 20, 3
MAX_GARBLED_SHARE = 1 / 3

LIST_MARK = re.compile(r"^\s*(?:[-*+•·]|\d{1,3}[.)、])\s+")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ENTRY_SEPARATORS = re.compile(r"[|｜/»>›→•·\s]+")

# Entries that stand alone on a line only as navigation.
ALONE = frozenset(
    """
    返回首页 返回顶部 回到顶部 返回上页 返回列表 上一页 下一页 上一篇 下一篇 上一章 下一章 加载更多 查看更多 阅读全文
    阅读更多 展开全部 网站地图 友情链接 设为首页 加入收藏 收藏本站 打印本页 关闭窗口 忘记密码 立即登录 免费注册
    跳转到主内容 跳到主要内容 编辑此页 编辑本页
    """.split()
)
# Entries that make a line navigation when at least half of its entries are of them.
IN_A_MENU = ALONE | frozenset(
    """
    首页 主页 登录 登陆 注册 退出 搜索 产品 文档 博客 社区 下载 论坛 新闻 资讯 招聘 关于 帮助 更多 分享 收藏 点赞 评论
    举报 打印 中文 English 关于我们 联系我们 加入我们 帮助中心 新闻中心 产品中心 下载中心 个人中心 会员中心 解决方案
    意见反馈 隐私政策 隐私声明 服务条款 使用条款 用户协议 版权声明 法律声明 免责声明 商务合作 广告服务 常见问题 购物车
    我的订单
    """.split()
)
NAVIGATION_START = re.compile(
    r"(?:您?(?:当前|现在)?的?位置|当前位置|面包屑)\s*[:：]"
    r"|(?:首页|主页)\s*[>»›]"
    r"|(?:上|下)一(?:篇|页|章|节)\s*[:：]"
    r"|上一页.*下一页"
    r"|(?:相关(?:阅读|推荐|文章)|猜你喜欢|热门(?:文章|标签|推荐)|最新(?:文章|评论))\s*(?:[:：]|$)"
    r"|分享(?:到|至)"
    r"|(?:编辑此页|在\s?GitHub\s?上编辑|Edit this page)"
)
FURNITURE = re.compile(
    r"版权所有|[Cc]opyright\s*(?:©|\([cC]\))|©\s*\d{4}|All [Rr]ights [Rr]eserved|ICP\s*[备证]\s*\d|公网安备|(?:^|\s)ICP备"
    r"|(?:网站|站点|我们|页面)[^，。]{0,8}(?:使用|采用)[^，。]{0,8}[Cc]ookie|(?:接受|拒绝|同意)(?:所有|全部)?\s*[Cc]ookie|[Cc]ookie\s*(?:政策|设置|偏好)"
    r"|(?:[Ww]e|[Tt]his site) uses? cookies|[Aa]ccept (?:all )?cookies"
    r"|(?:请先?|您还?未|尚未)(?:登录|登陆)(?:后|才能|再)?[^，。]{0,12}$|^(?:登录|登陆)后(?:可|才能|即可|方可)?(?:查看|可见|评论|回复|下载)[^，。]{0,8}$"
    r"|^(?:阅读|浏览|点赞|评论|收藏|转发)(?:数|量|次数)?\s*[:：(（]?\s*\d+"
    r"|共\s*\d+\s*页|^第\s*\d+\s*页[\s/／共]*(?:\d+\s*页)?$"
)

# A phrase in quotation marks is written about, not said.
ADVERTISING = re.compile(
    r"(?<![“\"「『‘'《])(?:"
    r"扫(?:码|一扫)(?:关注|加|添加|领取|进群|入群|下载|咨询)?|(?:扫描|长按|识别)[^，。]{0,6}二维码"
    r"|(?:关注|搜索)[^，。]{0,8}(?:公众号|视频号)|(?:加|添加)(?:我|客服|老师|助教|小助手)?(?:的)?(?:微信|QQ|V信)|加群|进群|入群"
    r"|(?:点击|立即|马上|免费|抢先)(?:领取|购买|抢购|报名|咨询|下单|试听|体验|加入|订阅)|限时(?:优惠|特价|折扣|秒杀|免费|抢购)"
    r"|优惠券|优惠码|折扣码|满\d+减\d+|名额有限|先到先得|错过再等|原价\s*[¥￥]?\d+|仅需\s*[¥￥]?\d+|客服(?:热线|电话|微信)|咨询(?:热线|电话)"
    r"|全场[^，。]{0,4}折|转发(?:本文|朋友圈)|点个?(?:赞|在看)[^，。]{0,6}(?:关注|转发|收藏)|一键三连|广告位?(?:招租|投放|合作)"
    r"|现金网|娱乐城|博彩|百家乐|威尼斯人|国际登录器?"
    r")"
)

# Two characters that a line must hold to be furniture, or the beginning of navigation; and with which each phrase of
# advertisement begins. Entries of menus are taken from above.
IN_FURNITURE = (
    *"""
    置： 置: 首页 主页 一篇 一页 一章 一节 猜你 热门 关推 关阅 关文 新文 新评 享到 享至 此页 上编 Ed 版权 yr Ri IC 公网 ki
    请登 先登 未登 录后 陆后 阅读 浏览 点赞 评论 收藏 转发
    """.split(),
    *(f"{first}{second}" for first in "共第置©" for second in " 123456789"),
)
IN_ADVERTISEMENT = """
    扫码 扫一 扫描 长按 识别 公众 视频 微信 QQ V信 加群 进群 入群 点击 立即 马上 免费 抢先 限时 优惠 折扣 满0 满1 满2 满3 满4
    满5 满6 满7 满8 满9 名额 先到 错过 原价 仅需 客服 咨询 全场 转发 点赞 点个 一键 广告 现金 娱乐 博彩 百家 威尼 国际
""".split()
FURNITURE_PAIR, PHRASE_PAIR = 1, 2
PAIRS = 1 << 18


def noise_lines(text: str, codes: CodePoints, blocks: BlockTable, config: FilterConfig) -> list[NoiseLine]:
    """Return the lines of a text that the line rules find, those in mode `off` left out, in order.

    `codes` and `blocks` are the text's.
    """
    contents = [NoiseLine(start, end, "contents_line") for start, end in _contents(codes).tolist()]
    others = (*_judged_lines(text, codes, blocks), *_repeated_and_garbled(codes, blocks))
    found = {line.start: line for line in (*others, *contents)}
    return sorted(line for line in found.values() if config.mode(line.rule) != "off")


def judge_line(line: str) -> LineRule | None:
    """Return the rule by which a line of prose is page furniture, or None for a line to keep."""
    words = LINK.sub(r"\1", LIST_MARK.sub("", line)).strip()
    if not words or len(words) > LONGEST_JUDGED:
        return None
    if _is_navigation(words):
        return "navigation_line"
    if len(words) <= LONGEST_FURNITURE and FURNITURE.search(words):
        return "furniture_line"
    phrases = len(ADVERTISING.findall(words))
    return "advertisement_line" if phrases and len(words) <= phrases * CHARACTERS_PER_ADVERTISING_PHRASE else None


def _is_navigation(words: str) -> bool:
    if len(words) <= LONGEST_FURNITURE and NAVIGATION_START.match(words):
        return True
    entries = [entry for entry in ENTRY_SEPARATORS.split(words) if entry]
    if len(entries) == 1:
        return entries[0] in ALONE
    if not entries or max(map(len, entries)) > LONGEST_NAVIGATION_ENTRY:
        return False
    return 2 * sum(entry in IN_A_MENU for entry in entries) >= len(entries)


def _judged_lines(text: str, codes: CodePoints, blocks: BlockTable) -> Iterator[NoiseLine]:
    for start, end in _candidates(codes, blocks, _pairs()).tolist():
        rule = judge_line(text[start:end])
        if rule is not None:
            yield NoiseLine(start, end, rule)


def _repeated_and_garbled(codes: CodePoints, blocks: BlockTable) -> Iterator[NoiseLine]:
    rules: tuple[LineRule, ...] = ("repeated_line", "garbled_line")
    for start, end, rule in _counted_lines(codes, blocks, classes()).tolist():
        yield NoiseLine(start, end, rules[rule])


@cache
def _pairs() -> npt.NDArray[np.uint8]:
    """Return for each `_pair` of characters what it may belong to."""
    table = np.zeros(PAIRS, np.uint8)
    for phrases, bit in ((IN_FURNITURE, FURNITURE_PAIR), ((*IN_ADVERTISEMENT, *IN_A_MENU), PHRASE_PAIR)):
        table[[_pair(ord(phrase[0]), ord(phrase[1])) for phrase in phrases]] |= bit
    return table


@compiled
def _pair(first: int, second: int) -> int:
    return int((np.uint32(first) * np.uint32(40503) ^ np.uint32(second) * np.uint32(9973)) & np.uint32(PAIRS - 1))


@compiled
def _candidates(codes: CodePoints, blocks: BlockTable, pairs: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return beginnings and ends, newline included, of prose lines that may be noise, shape (lines, 2)."""
    spans = np.empty((codes.size // 2 + 1, 2), np.int64)
    count = 0
    for index in range(blocks.shape[0]):
        line, stop = blocks[index, 0], blocks[index, 1]
        while blocks[index, 2] in (PARAGRAPH, LIST) and line < stop:
            end = line_end(codes, line)
            if _may_be_noise(codes, line, end, pairs):
                spans[count, 0], spans[count, 1] = line, min(end + 1, codes.size)
                count += 1
            line = end + 1
    return spans[:count]


@compiled
def _contents(codes: CodePoints) -> npt.NDArray[np.int64]:
    """Return beginnings and ends of the lines of `.. toctree::`, reStructuredText's tables of contents."""
    spans = np.empty((codes.size // 2 + 1, 2), np.int64)
    count, line, indent = 0, 0, -1
    while line < codes.size:
        end = line_end(codes, line)
        start = after_blanks(codes, line, end)
        if start < end and start - line <= indent:
            indent = -1
        begins = indent < 0 and begins_with(codes, start, end, ".. toctree::")
        if start < end and (begins or indent >= 0):
            spans[count, 0], spans[count, 1] = line, min(end + 1, codes.size)
            count += 1
        indent = start - line if begins else indent
        line = end + 1
    return spans[:count]


@compiled
def _may_be_noise(codes: CodePoints, start: int, end: int, pairs: npt.NDArray[np.uint8]) -> bool:
    """Tell whether a line is short enough for the pairs in it; targets of links do not count."""
    length = phrases = furniture = 0
    place = start
    while place < end and length <= LONGEST_JUDGED:
        if codes[place] == 0x28 and place > start and codes[place - 1] == 0x5D:
            while place < end and codes[place] != 0x29:
                place += 1
        found = pairs[_pair(codes[place], codes[place + 1] if place + 1 < end else 0x20)] if place < end else 0
        phrases += found & PHRASE_PAIR != 0
        furniture += found & FURNITURE_PAIR != 0
        length += 1
        place += 1
    if length > LONGEST_JUDGED:
        return False
    return 0 < length <= phrases * CHARACTERS_PER_ADVERTISING_PHRASE or (furniture > 0 and length <= LONGEST_LINE)


@compiled
def _counted_lines(codes: CodePoints, blocks: BlockTable, table: Classes) -> npt.NDArray[np.int64]:
    """Return beginning, end and rule (0 repeated, 1 garbled) of prose lines, shape (lines, 3)."""
    spans = np.empty((codes.size // 2 + 1, 3), np.int64)
    times = {np.uint64(0): 0}
    count = 0
    for index in range(blocks.shape[0]):
        line, stop = blocks[index, 0], blocks[index, 1]
        while blocks[index, 2] in (PARAGRAPH, LIST) and line < stop:
            end = line_end(codes, line)
            start, value = after_blanks(codes, line, end), np.uint64(14695981039346656037)
            han = lost = 0
            for place in range(start, end):
                han += table[codes[place]] & HAN != 0
                value = (value ^ np.uint64(codes[place])) * np.uint64(0x100000001B3)
                lost += table[codes[place]] & LOST != 0
            seen = 0
            if end - start >= SHORTEST_REPEATED and 2 * han >= end - start:
                seen = times.get(value, 0)
                times[value] = seen + 1
            garbled = lost > MAX_GARBLED_SHARE * (end - start)
            if seen >= TIMES_KEPT or garbled:
                spans[count, 0], spans[count, 1], spans[count, 2] = line, min(end + 1, codes.size), garbled
                count += 1
            line = end + 1
    return spans[:count]
