"""HTTP answers byte by byte: what is whole, what is not, and that nothing grows without a bound."""

from __future__ import annotations

import random

import pytest

from minder.model.errors import NoAnswerError
from minder.wire.answers import Answer, AnswerReader

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nhel\r\n2\r\nlo\r\n0\r\nX: 1\r\n\r\n"
BARE = b"HTTP/1.1 404 no\nContent-Length:2\n\nno"
EMPTY = b"HTTP/1.1 204 none\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH


def read(data: bytes, step: int = 10**9, largest: int = 1000) -> Answer | None:
    reader, found = AnswerReader(largest), None
    for at in range(0, len(data), step):
        found = found or reader.feed(data[at : at + step])
    return found


@pytest.mark.parametrize("step", [1, 2, 7, 10**9])
@pytest.mark.parametrize(
    ("data", "status", "body"),
    [(LENGTH, 200, b"hello"), (CHUNKS, 200, b"hello"), (BARE, 404, b"no"), (EMPTY, 204, b""), (INTERIM, 200, b"hello")],
)
def test_an_answer_is_the_same_however_it_is_cut_into_pieces(data: bytes, status: int, body: bytes, step: int) -> None:
    assert read(data, step) == Answer(status, body, keep=True)


@pytest.mark.parametrize(
    ("data", "keep"),
    [
        (LENGTH, True),
        (LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (LENGTH.replace(b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK\r\nConnection: keep-alive"), True),
        (LENGTH.replace(b"200 OK", b"200 OK\r\nConnection: Close"), False),
        (LENGTH + b"HTTP/1.1 200 OK", False),  # more than was asked for: whose answer would that be?
        (CHUNKS + b"x", False),
    ],
)
def test_a_connection_is_kept_only_where_both_sides_agree(data: bytes, keep: bool) -> None:
    found = read(data)
    assert found is not None and found.keep is keep


@pytest.mark.parametrize("data", [LENGTH, CHUNKS, BARE, EMPTY])
def test_an_answer_that_is_cut_off_anywhere_is_none(data: bytes) -> None:
    for cut in range(len(data)):
        reader = AnswerReader(1000)
        assert reader.feed(data[:cut]) is None or cut >= len(data) - 2  # the second line feed of two may be on its way
        if cut < len(data) - 2:
            with pytest.raises(NoAnswerError, match="peer closed"):
                reader.end()


def test_without_a_length_the_answer_ends_with_the_connection() -> None:
    reader = AnswerReader(1000)
    assert reader.feed(b"HTTP/1.0 200 OK\r\n\r\nall") is None
    assert reader.feed(b" of it") is None
    assert reader.end() == Answer(200, b"all of it", keep=False)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
        (b"HTTP/2 200\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "larger than"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "no number"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "no number"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", "no number"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001, "larger than"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000, "does not end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "not asked for"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", "packed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "broken"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "broken"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", "larger than"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", "longer than it says"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000, "does not end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"300\r\n" + b"x" * 768 + b"\r\n" + b"300\r\n", "larger than"),
    ],
)
def test_what_is_no_answer_is_said_in_one_line(data: bytes, words: str) -> None:
    with pytest.raises(NoAnswerError, match=words) as caught:
        read(data)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_no_bytes_raise_anything_else() -> None:
    dice = random.Random(1)
    pieces = [LENGTH, CHUNKS, b"\r\n", b"\n\n", b"HTTP/1.1 200\r\n", b"Content-Length: 3\r\n", b"\x00\xff", b"0\r\n\r\n", b"f" * 9]
    for _ in range(3000):
        reader = AnswerReader(100)
        try:
            for _ in range(dice.randrange(1, 6)):
                piece = dice.choice(pieces)
                if reader.feed(piece[: dice.randrange(len(piece) + 1)]) is not None:
                    break
            else:
                reader.end()
        except NoAnswerError:
            pass
