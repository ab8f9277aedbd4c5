"""What launchers and loggers put before a line: colours, rank labels, host names, time stamps, log levels."""

from __future__ import annotations

import re

__all__ = ["strip_prefix"]

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_LABEL = re.compile(
    r"""\s*(?:
        \[(?:rank|default|trainer|worker|node)\s*\d+\]:?(?P<rank>)
      | \((?P<actor>\w[\w.]*\s+pid=\d+)(?:,\s*ip=[\w.:]+)?\)(?:\s*\[repeated[^\]]*\])?
      | \[(?:[\w.-]+@)?\d+,\d+\]<std(?:out|err)>:
      | \((?:[\w-]+,\s)?rank=\d+,\s*pid=\d+(?:,\s*ip=[\w.:]+)?\)
      | [a-z]\w*/\d+\s+(?=[A-Za-z])
      | \d{1,6}:\s(?=\s*\S)
      | (?:rank|node|host|worker|gpu)[\w.-]*\d:\s
      | [a-z][\w]*-[\w.-]*\d[\w.-]*(?::\s|\s+\|\s)(?!\s*\d+%\|)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_STAMP = re.compile(
    rf"""\s*(?:
        \[?\d{{4}}[-/]\d\d[-/]\d\d[T\s]{_TIME}(?:Z|\s?[+-]\d\d:?\d\d)?\]?
      | \[?\d\d/\d\d(?:/\d{{2,4}})?\s{_TIME}\]?
      | \[?{_TIME}\]?(?=\s)
      | [IWE]\d{{3,8}}\s{_TIME}\s+\d+\s+(?:[\w.]+\s+)?[\w.]+:\d+\]
      | \[?(?:DEBUG|INFO|WARNING)\]?(?=[\s:|-])
      | [-|:](?=\s)
    )""",
    re.VERBOSE,
)


def strip_prefix(line: str) -> tuple[str, str]:
    """Who wrote the line ("" where no label says so), and the line without labels and stamps.

    >>> strip_prefix("[rank3]: 2026-01-05 10:11:12,345 - INFO - step: 12")
    ('[rank3]', 'step: 12')
    """
    line = _ANSI.sub("", line)
    source, at = "", 0
    while True:
        label = _LABEL.match(line, at)
        if label is not None and label.end() > at:
            source = source or label[0].strip(" :|")
        found = label or _STAMP.match(line, at)
        if found is None or found.end() == at:
            return source, line[at:].strip()
        at = found.end()
