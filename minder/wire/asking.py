"""Questions to one process under its own token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from minder.wire.answers import Answer
from minder.wire.plain import Origin, PlainHttp, Question
from minder.wire.token_files import Token, tokens_of

__all__ = ["Asker"]


class Asker:
    """Asks one process, at one URL. While its token is exchanged it may know only one of the two: the other is tried after a 401,
    which says that nothing was done. What was taken last is tried first as long as it counts."""

    def __init__(self, url: str, token: Token) -> None:
        self._url, self._token = url, token
        self._questions: dict[str, Question] = {}
        self._taken = ""

    async def get(self, http: PlainHttp, path: str, silent_s: float, connect_s: float | None = None) -> Answer:
        """Raises NoAnswerError, as `PlainHttp.get`."""
        return await self._ask(lambda question: http.get(question, path, silent_s, connect_s))

    async def post(self, http: PlainHttp, path: str, body: bytes, silent_s: float, connect_s: float) -> Answer:
        """Raises NoAnswerError, as `PlainHttp.post`."""
        return await self._ask(lambda question: http.post(question, path, body, silent_s, connect_s))

    async def _ask(self, send: Callable[[Question], Awaitable[Answer]]) -> Answer:
        texts = tokens_of(self._token)
        first = self._taken if self._taken in texts else texts[0]
        answer = await send(self._question(first))
        if answer.status == 401 and len(texts) > 1:
            first = texts[1] if first == texts[0] else texts[0]
            answer = await send(self._question(first))
        if answer.status != 401:
            self._taken = first
        return answer

    def _question(self, text: str) -> Question:
        found = self._questions.get(text)
        if found is None:
            if len(self._questions) > 1:
                self._questions.clear()
            found = self._questions[text] = Question(Origin.of(self._url), text)
        return found
