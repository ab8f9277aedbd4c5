"""Questions over real sockets: connections are kept, closed ones are no failure, and nobody is waited for for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

from minder.model.errors import NoAnswerError
from minder.wire.plain import Origin, PlainHttp, Question

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def ask(talk: Talk, *paths: str, silent_s: float = 20.0, pause_s: float = 0.0, token: str = "") -> list[Any]:
    """Answers of a server that talks like this, or the errors in their place."""

    async def run() -> list[Any]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await talk(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        question = Question(Origin.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base/"), token)
        found: list[Any] = []
        with closing(PlainHttp()) as http:
            for path in paths:
                try:
                    found.append(await http.get(question, path, silent_s))
                except NoAnswerError as error:
                    found.append(error)
                await asyncio.sleep(pause_s)
        server.close()
        return found

    return asyncio.run(run())


def counting(heads: list[bytes], *, questions: int = 10**9, last: bytes = b"") -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(b"connection")
        for _ in range(questions):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(OK)
        writer.write(last)

    return talk


def test_a_question_says_whom_it_asks_what_and_with_which_right() -> None:
    heads: list[bytes] = []
    (answer,) = ask(counting(heads), "/v1/signals?since=3", token="secret")
    assert (answer.status, answer.body) == (200, b"ok")
    first, *rest = heads[1].decode().split("\r\n")
    assert first == "GET /base/v1/signals?since=3 HTTP/1.1"
    assert "Authorization: Bearer secret" in rest and any(line.startswith("Host: 127.0.0.1:") for line in rest)


def test_connections_are_kept() -> None:
    heads: list[bytes] = []
    assert [answer.body for answer in ask(counting(heads), "/a", "/b", "/c")] == [b"ok"] * 3
    assert heads.count(b"connection") == 1


def test_a_connection_that_was_closed_meanwhile_is_made_anew() -> None:
    heads: list[bytes] = []
    answers = ask(counting(heads, questions=1), "/a", "/b", "/c", pause_s=0.05)
    assert [answer.body for answer in answers] == [b"ok"] * 3 and heads.count(b"connection") == 3


def test_a_server_that_closes_when_it_is_asked_again_is_asked_once_more() -> None:
    seen: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append("connection")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.readuntil(b"\r\n\r\n")  # and hangs up without a word

    assert [answer.body for answer in ask(talk, "/a", "/b")] == [b"ok"] * 2 and len(seen) == 2


def test_what_comes_unasked_is_nobodys_answer() -> None:
    """Bytes that a connection holds before the question would shift every later answer by one."""
    heads: list[bytes] = []
    wrong = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await counting(heads, questions=1)(reader, writer)
        await asyncio.sleep(0.02)
        writer.write(wrong)
        await reader.read()

    assert [answer.body for answer in ask(talk, "/a", "/b", pause_s=0.2)] == [b"ok"] * 2


def test_a_new_connection_that_hangs_up_is_an_error() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    (error,) = ask(talk, "/")
    assert "without sending a response" in str(error)


def test_silence_ends_and_drops_count_twice() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def drops(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 200 OK\r\n" if not reader.at_eof() else b"")
            await asyncio.sleep(0.02)

    (error,) = ask(silent, "/", silent_s=0.1)
    assert "no answer within 0.1 s" in str(error)
    (error,) = ask(drops, "/", silent_s=0.1)
    assert "too slowly" in str(error)


def test_an_answer_that_comes_too_late_is_not_the_next_ones() -> None:
    served: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
            await asyncio.sleep(0.3 if path.endswith("/slow") else 0.0)
            served.append(path)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path.encode()))

    slow, quick = ask(talk, "/slow", "/quick", silent_s=0.15)
    assert isinstance(slow, NoAnswerError) and quick.body == b"/base/quick"


def test_a_redirect_is_an_answer_and_not_followed() -> None:
    paths: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            paths.append((await reader.readuntil(b"\r\n\r\n")).split(b" ")[1])
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")

    (answer,) = ask(talk, "/")
    assert answer.status == 302 and paths == [b"/base/"]


def test_a_port_where_nobody_listens_is_an_error() -> None:
    async def run() -> None:
        with closing(PlainHttp()) as http, pytest.raises(NoAnswerError, match="no connection"):
            await http.get(Question(Origin.of("http://127.0.0.1:1")), "/", 5.0)

    asyncio.run(run())


def test_what_changes_something_has_a_connection_of_its_own_and_is_never_sent_twice() -> None:
    bodies: list[bytes] = []

    async def run() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            bodies.append(await reader.readexactly(length))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        question = Question(Origin.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        with closing(PlainHttp()) as http, pytest.raises(NoAnswerError):
            await http.post(question, "/v1/workers", b'{"desired": "end"}', 5.0, 5.0)
        server.close()

    asyncio.run(run())
    assert bodies == [b'{"desired": "end"}']


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://m0:9400", "m0:9400"),
        ("http://m0", "m0"),
        ("https://[::1]", "[::1]"),
        ("https://[::1]:443/x", "[::1]"),
        ("https://m0:80", "m0:80"),
    ],
)
def test_a_host_header_has_the_port_unless_it_is_the_usual_one(url: str, host: str) -> None:
    assert Origin.of(url).name == host


@pytest.mark.parametrize(
    "url", ["m0:9400", "ftp://m0", "http://", "http://m0:99999", "http://me:secret@m0", "http://m0/?a=b", "http://[::1"]
)
def test_what_is_no_address_is_said_without_a_password(url: str) -> None:
    with pytest.raises(NoAnswerError) as caught:
        Origin.of(url)
    assert "secret" not in str(caught.value)


def test_a_token_cannot_carry_a_header() -> None:
    with pytest.raises(NoAnswerError, match="no header can carry"):
        Question(Origin.of("http://m0"), "a\r\nX: 1")
