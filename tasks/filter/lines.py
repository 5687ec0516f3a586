"""Which lines of a page are furniture: navigation and advertisement. Only whole, short lines of prose are judged, so a
document that writes about such lines keeps its sentences.
"""

import re
from typing import Literal

LineRule = Literal["navigation_line", "advertisement_line"]

LONGEST_NAVIGATION_ENTRY = 12
CHARACTERS_PER_ADVERTISING_PHRASE = 40

LIST_MARK = re.compile(r"^\s*(?:[-*+•·]|\d{1,3}[.)、])\s+")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ENTRY_SEPARATORS = re.compile(r"[|｜/»>›→•·\s]+")

# Entries that stand alone on a line only as navigation.
ALONE = frozenset(
    """
    返回首页 返回顶部 回到顶部 返回上页 返回列表 上一页 下一页 上一篇 下一篇 上一章 下一章 加载更多 查看更多 阅读全文
    阅读更多 展开全部 网站地图 友情链接 设为首页 加入收藏 收藏本站 打印本页 关闭窗口 忘记密码 立即登录 免费注册
    跳转到主内容 跳到主要内容
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
    r"|(?:相关(?:阅读|推荐|文章)|猜你喜欢|热门(?:文章|标签|推荐)|最新(?:文章|评论))\s*(?:[:：]|$)"
    r"|分享(?:到|至)"
    r"|本站(?:使用|采用)\s*[Cc]ookie"
)
FOOTER = re.compile(
    r"版权所有|[Cc]opyright\s*(?:©|\([cC]\))|©\s*\d{4}|All [Rr]ights [Rr]eserved|ICP\s*[备证]\s*\d|公网安备|(?:^|\s)ICP备"
)
LONGEST_FOOTER = 80

# A phrase in quotation marks is written about, not said.
ADVERTISING = re.compile(
    r"(?<![“\"「『‘'《])(?:"
    r"扫(?:码|一扫)(?:关注|加|添加|领取|进群|入群|下载|咨询)?|(?:扫描|长按|识别)[^，。]{0,6}二维码"
    r"|(?:关注|搜索)[^，。]{0,8}(?:公众号|视频号)|(?:加|添加)(?:我|客服|老师|助教|小助手)?(?:的)?(?:微信|QQ|V信)|加群|进群|入群"
    r"|(?:点击|立即|马上|免费|抢先)(?:领取|购买|抢购|报名|咨询|下单|试听|体验|加入|订阅)|限时(?:优惠|特价|折扣|秒杀|免费|抢购)"
    r"|优惠券|优惠码|折扣码|满\d+减\d+|名额有限|先到先得|错过再等|原价\s*[¥￥]?\d+|仅需\s*[¥￥]?\d+|客服(?:热线|电话|微信)|咨询(?:热线|电话)"
    r"|全场[^，。]{0,4}折|转发(?:本文|朋友圈)|点个?(?:赞|在看)[^，。]{0,6}(?:关注|转发|收藏)|一键三连|广告位?(?:招租|投放|合作)"
    r")"
)


def judge_line(line: str) -> LineRule | None:
    """Return the rule by which a line of prose is page furniture, or None for a line to keep."""
    words = LINK.sub(r"\1", LIST_MARK.sub("", line)).strip()
    if not words:
        return None
    if _is_navigation(words):
        return "navigation_line"
    phrases = len(ADVERTISING.findall(words))
    return "advertisement_line" if phrases and len(words) <= phrases * CHARACTERS_PER_ADVERTISING_PHRASE else None


def _is_navigation(words: str) -> bool:
    if len(words) <= LONGEST_FOOTER and (FOOTER.search(words) or NAVIGATION_START.match(words)):
        return True
    entries = [entry for entry in ENTRY_SEPARATORS.split(words) if entry]
    if len(entries) == 1:
        return entries[0] in ALONE
    if not entries or max(map(len, entries)) > LONGEST_NAVIGATION_ENTRY:
        return False
    return 2 * sum(entry in IN_A_MENU for entry in entries) >= len(entries)
