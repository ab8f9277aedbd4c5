"""What a launcher or a log collector writes before every line: `[rank3]: `, `3: `, `node-7: `, a time. The dump stands behind it."""

from __future__ import annotations

import re

__all__ = ["without_labels"]

_HEAD = r"(?:(?:Current thread|Thread) (?:0x[0-9a-fA-F]+|\d+) ?[(\[]|Process \d+: )"
_PLAIN = re.compile(rf"^{_HEAD}", re.MULTILINE)
_LABELLED = re.compile(rf"^(?P<label>\S[^\n]{{0,79}}?|[ ]+\d+: ){_HEAD}", re.MULTILINE)
_CLOCK = re.compile(r"\d:\d\d")


def without_labels(text: str) -> str:
    """The text without the label of its lines, which is seen from what stands before the first words of its threads.

    A label is the same everywhere, or holds a time, whose digits may differ. Lines of several ranks in one file are left as they are.

    >>> without_labels("[rank3]: Thread 0x7f01 (most recent call first):\\n[rank3]:   File \\"a.py\\", line 3 in wait\\n")
    'Thread 0x7f01 (most recent call first):\\n  File "a.py", line 3 in wait\\n'
    """
    if _PLAIN.search(text):
        return text
    labels = {found["label"] for found in _LABELLED.finditer(text)}
    if len(labels) == 1 and not any(_CLOCK.search(label) for label in labels):
        pattern = re.escape(labels.pop())
    elif labels and len(forms := {re.sub(r"\d+", "0", label) for label in labels}) == 1 and all(_CLOCK.search(label) for label in labels):
        pattern = re.escape(forms.pop()).replace("0", r"\d+")
    else:
        return text
    return re.sub(rf"^(?:{pattern.removesuffix(chr(92) + ' ')} ?)", "", text, flags=re.MULTILINE)
