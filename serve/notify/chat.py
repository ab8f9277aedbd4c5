"""A notice as chat rooms take it (Slack's incoming webhooks, and those that imitate them)."""

from __future__ import annotations

from typing import Any

from minder.record.api.notices import Notice

__all__ = ["chat_message"]

_MARKS = {"verdict": {"evict": "EVICT", "page": "PAGE", "watch": "WATCH"}, "question": "ASKS", "action": "DONE", "closed": "CLOSED"}
_MOST_LETTERS = 2900  # a section holds 3,000
_MOST_LINES = 6


def chat_message(notice: Notice) -> dict[str, Any]:
    """{"text", "blocks"}. Nothing in it is taken for a mention or a link: a machine's log line cannot call a whole room."""
    mark = _MARKS[notice.kind]
    word = mark.get(notice.tier or "", "PAGE") if isinstance(mark, dict) else mark
    head = f"{word}: {_plain(notice.title)}"
    lines = [_plain(notice.what)]
    lines += [f"• {_plain(line)}" for line in notice.evidence[:_MOST_LINES] if notice.kind == "verdict"]
    lines += [f"undo: `{_plain(command).replace('`', ' ')}`" for command in notice.undo if notice.kind == "action"]
    foot = f"incident {_plain(notice.incident)}, {notice.time}, {notice.state}"
    if notice.link:
        foot += f" | <{_plain(notice.link).replace('|', '%7C')}|open>"
    return {
        "text": f"{head} ({_plain(notice.incident)})",
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": f"*{head}*\n{chr(10).join(lines)}"[:_MOST_LETTERS]}},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": foot[:_MOST_LETTERS]}]},
        ],
    }


def _plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("*", "∗")
