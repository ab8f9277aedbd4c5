"""Inputs that no client should send to the service: made from a seed, each with what it may be answered."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

__all__ = ["FAMILIES", "Case", "cases"]

PARQUET, ARROW = "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"
METRICS = ("cpu_usage_ratio", "gpu_power_draw_watts", "gpu_duty_cycle_ratio")
ACTIONS = (
    "/v1/pauses",
    "/v1/pauses/end",
    "/v1/maintenance",
    "/v1/machines/m2/outcome",
    "/v1/machines/m2/return",
    "/v1/incidents/llm-1/notes",
)
READS = ("/v1/incidents", "/v1/machines", "/v1/jobs", "/v1/events", "/v1/pauses", "/v1/policy", "/v1/standbys", "/v1/maintenance")


@dataclass(frozen=True, slots=True)
class Case:
    """One request. role: whose token. harmless: it may be answered with 2xx, as it changes nothing. raw: bytes for the socket."""

    family: str
    method: str = "GET"
    path: str = "/v1/incidents"
    role: str = "viewer"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    harmless: bool = False
    raw: bytes | None = None


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` of them, families in turn by their weight."""
    chance = random.Random(seed)
    names, weights = zip(*((make, weight) for make, weight in FAMILIES.items()), strict=True)
    for make in chance.choices(names, weights, k=count):
        yield make(chance)


def _table(chance: random.Random) -> pl.DataFrame:
    rows = chance.randint(1, 40)
    columns: dict[str, Any] = {"timestamp": [1_772_431_951_000 + 1000 * row for row in range(rows)], "machine": ["n1"] * rows}
    columns |= {name: [chance.random() for _ in range(rows)] for name in METRICS}
    return pl.DataFrame(columns).with_columns(pl.col("timestamp").cast(pl.Datetime("ms", "UTC")))


def broken_table(chance: random.Random) -> Case:
    """Cut off, or with some bytes changed."""
    stream = io.BytesIO()
    kind = chance.choice((PARQUET, ARROW))
    _table(chance).write_parquet(stream) if kind == PARQUET else _table(chance).write_ipc_stream(stream)
    content = bytearray(stream.getvalue())
    if chance.random() < 0.5:
        del content[chance.randrange(1, len(content)) :]
        return Case("cut off or changed tables", "POST", "/v1/scores", "scorer", {"Content-Type": kind}, bytes(content), harmless=True)
    for _ in range(chance.randint(1, 30)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    return Case("cut off or changed tables", "POST", "/v1/scores", "scorer", {"Content-Type": kind}, bytes(content), harmless=True)


def bomb(chance: random.Random) -> Case:
    """A few kilobytes that stand for gigabytes."""
    which = chance.randrange(4)
    if which == 0:
        rows = chance.choice((3_000_000, 8_000_000))
        stream = io.BytesIO()
        pl.DataFrame(
            {"timestamp": pl.repeat(0, rows, eager=True, dtype=pl.Int64), "machine": pl.repeat("a", rows, eager=True)}
        ).write_parquet(stream, compression="zstd")
        return Case("bombs", "POST", "/v1/scores", "scorer", {"Content-Type": PARQUET}, stream.getvalue())
    if which == 1:  # a footer that claims to be huge
        body = b"PAR1" + bytes(chance.randrange(64)) + struct.pack("<I", chance.choice((2**31 - 1, 2**32 - 1, 10**6))) + b"PAR1"
        return Case("bombs", "POST", "/v1/scores", "scorer", {"Content-Type": PARQUET}, body)
    if which == 2:  # an Arrow message whose length is beyond memory
        body = b"\xff\xff\xff\xff" + struct.pack("<i", chance.choice((2**31 - 1, -1, 2**30))) + bytes(256)
        return Case("bombs", "POST", "/v1/scores", "scorer", {"Content-Type": ARROW}, body)
    stamp = "2026-03-02T06:12:31Z"
    far = [
        {"timestamp": stamp, "machine": "a"},
        {"timestamp": chance.choice(("2026-03-05T06:12:31Z", "2099-01-01T00:00:00Z")), "machine": "a"},
    ]
    return Case(
        "bombs", "POST", "/v1/scores", "scorer", _json(), json.dumps({"samples": [row | {METRICS[0]: 0.5} for row in far]}).encode()
    )


def odd_number(chance: random.Random) -> Case:
    """NaN, infinities, numbers beyond any type, in documents that would be right otherwise."""
    value = chance.choice(
        ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 400, "1e-400", "-0", "9223372036854775808", "true", '""')
    )
    place = chance.choice(("seconds", "timestamp", "value", "limit", "code"))
    if place == "limit":
        return Case("odd numbers", path=f"/v1/incidents?limit={value.strip(chr(34))}&cursor={value}", harmless=True)
    if place == "code":
        body = f'{{"signals": [{{"id": "x", "kind": "xid", "machine": "nobody", "code": {value}}}]}}'
        return Case("odd numbers", "POST", "/v1/signals", "source", _json(), body.encode(), harmless=True)
    if place == "seconds":
        body = f'{{"scope": "all", "seconds": {value}, "reason": "x"}}'
        return Case("odd numbers", "POST", "/v1/pauses", "operator", _action(chance), body.encode(), harmless=False)
    stamp = value if place == "timestamp" else '"2026-03-02T06:12:31Z"'
    number = value if place == "value" else "0.5"
    body = f'{{"samples": [{{"timestamp": {stamp}, "machine": "a", "{METRICS[0]}": {number}}}]}}'
    return Case("odd numbers", "POST", "/v1/scores", "scorer", _json(), body.encode(), harmless=True)


def odd_path(chance: random.Random) -> Case:
    """Ways out of the tree, bytes that are no text, names that are too long."""
    tricks = (
        "../../etc/passwd",
        "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "..%5c..%5cboot.ini",
        "%00",
        "%ff%fe",
        "%c0%ae%c0%ae/",
        "a" * 6000,
        "'%20OR%201=1--",
        "%0d%0aX-Injected:%201",
        "{{7*7}}",
        "$(id)",
        "llm-1;.json",
        "%F0%9F%92%A5",
        ".",
        "//",
        "~root",
        "%25%32%65",
        "llm-1/..%2f..%2ftokens",
    )
    base = chance.choice((*READS, "/v1/signals", "/v1/scores", "/v1/nothing", "/static", ""))
    query = chance.choice(
        ("", "?cursor=%00", "?since=" + "9" * 100, "?job=..%2f..", "?kind=" + "x" * 500, "?limit=-1", "?incidents_since=x")
    )
    return Case("odd paths", path=f"{base}/{chance.choice(tricks)}{query}", role="operator", harmless=True)


def wrong_token(chance: random.Random) -> Case:
    """No one's, a real one with a letter changed, another scheme, one that would fill the header."""
    value = chance.choice(
        (
            "Bearer " + "x" * chance.randrange(1, 4000),
            "Basic cm9vdDpyb290",
            "Bearer",
            "Bearer  ",
            "bearer null",
            "Token x",
            "Bearer a.b.c",
            "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.",
            "Bearer minder_" + "0" * 43,
            "Bearer ' OR 1=1 --",
        )
    )
    method, path = chance.choice(
        (("GET", chance.choice(READS)), ("POST", chance.choice(ACTIONS)), ("POST", "/v1/scores"), ("POST", "/v1/signals"))
    )
    return Case("wrong tokens", method, path, "none", {"Authorization": value} | _action(chance), b"{}")


def wrong_role(chance: random.Random) -> Case:
    """Valid tokens that reach for what is not theirs."""
    path, body = chance.choice(
        (
            ("/v1/pauses", {"scope": "all", "seconds": 60, "reason": "x"}),
            ("/v1/machines/m2/return", {"reason": "x"}),
            ("/v1/incidents/llm-1/notes", {"text": "x"}),
            ("/v1/maintenance", {"seconds": 60, "machines": ["m1"], "reason": "x"}),
            ("/v1/decisions/evict-1/approve", {"reason": "x"}),
        )
    )
    role = chance.choice(("viewer", "agent", "source", "elsewhere"))
    if role == "agent" and chance.random() < 0.5:
        signals = [{"id": "x", "kind": "xid", "machine": chance.choice(("m2", "s1", "M1", "m1 ", "m1.")), "code": 79}]
        return Case("not their right", "POST", "/v1/signals", "agent", _json(), json.dumps({"signals": signals}).encode())
    return Case("not their right", "POST", path, role, _action(chance), json.dumps(body).encode())


def odd_document(chance: random.Random) -> Case:
    """JSON that is deep, doubled, of another shape, or none."""
    deep = chance.choice((500, 5_000, 30_000))
    body = chance.choice(
        (
            b"[" * deep,
            b'{"a":' * deep,
            b"[" * deep + b"]" * deep,
            b'{"scope": "all", "scope": "job", "seconds": 1}',
            b"null",
            b"[]",
            b'"x"',
            b"",
            b"\xff\xfe{",
            b"{" + b'"k":1,' * 3000 + b'"z":1}',
            json.dumps({"scope": ["all"], "seconds": {"$gt": 0}, "reason": None}).encode(),
            b'{"reason": "\\ud800"}',
            json.dumps({"scope": "all", "seconds": 60, "reason": "x" * 3000}).encode(),
            b'{"reason": "\\u0000"}',
            bytes(chance.randrange(256) for _ in range(300)),
        )
    )
    path = chance.choice(
        (
            *ACTIONS,
            "/v1/signals",
            "/v1/signals/alertmanager",
            "/v1/signals/nvsentinel",
            "/v1/signals/gpud?machine=nobody",
            "/v1/policy/dry-run",
            "/v1/jobs?reason=x",
        )
    )
    return Case("odd documents", "POST", path, "operator", _action(chance), body, harmless=path.startswith("/v1/signals"))


def odd_job(chance: random.Random) -> Case:
    """Jobs that reach for the service's own machine, for other machines, or for more than there is."""
    agent = "http://127.0.0.1:9"
    change: dict[str, Any] = chance.choice(
        (
            {"agent_token_file": "/etc/shadow"},
            {"state_dir": "../../.."},
            {"detector": {"model": "/tmp/model"}},
            {"telemetry": {"mapping": "/etc/passwd.toml"}},
            {"telemetry": {"url": "http://169.254.169.254/latest"}},
            {"telemetry": {"interval_s": chance.choice((0, 1e-300, 1e300, -1))}},
            {"scoring": {"engine": "ray", "ray_address": "10.0.0.1:6379"}},
            {"engine": {"kind": chance.choice(("slurm", "kubernetes", "local", None)), "job": "x"}},
            {"ranks_per_machine": chance.choice((10**9, 10**400, -1, "x"))},
            {"parallelism": {"tensor": 10**30}},
            {
                "machines": [
                    {"name": "n1", "agent": chance.choice(("http://127.0.0.1@evil.example", "file:///etc/passwd", "http://2130706433"))}
                ]
            },
            {"machines": [{"name": f"n{index}", "agent": agent} for index in range(6_000)]},
            {"machines": [{"name": chance.choice(("../n", "n\0", "n" * 300, "\ud800")), "agent": agent}]},
            {"machines": [{"name": "n1", "agent": agent, "local": {"run_dir": "/"}}]},
            {"name": chance.choice(("../x", "llm", "x" * 300, ""))},
            {"policy": {"a": [[[[{}]]]]}},
        )
    )
    document = {"name": "odd", "machines": [{"name": "n1", "agent": agent}], **change}
    headers = _action(chance) | {"Content-Type": chance.choice(("application/json", "application/toml", "text/plain", ""))}
    body = json.dumps(document).encode()
    return Case("odd jobs", "POST", "/v1/jobs?reason=x", chance.choice(("admin", "admin", "operator", "elsewhere")), headers, body)


def odd_header(chance: random.Random) -> Case:
    """What smuggles one request into another, or is no HTTP at all; sent as bytes."""
    tail = chance.choice(
        (
            b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nabcde",
            b"Content-Length: -1\r\n\r\n",
            b"Content-Length: 99999999999999999999\r\n\r\n",
            b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\nGET /v1/tokens HTTP/1.1\r\n\r\n",
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
            b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
            b"Transfer-Encoding: xchunked\r\n\r\n",
            b"X: " + b"a" * 100_000 + b"\r\n\r\n",
            b"Idempotency-Key: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
            b"X: a\r\n b\r\n\r\n",
            b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}",
            b"Content-Encoding: gzip\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
            b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            b"\r\n\r\n\x16\x03\x01\x02\x00",
            b"If-None-Match: " + b'"x",' * 5000 + b"\r\n\r\n",
            b"Last-Event-ID: " + b"9" * 400 + b"\r\n\r\n",
        )
    )
    line = chance.choice(
        (
            b"POST /v1/pauses HTTP/1.1",
            b"GET /v1/incidents HTTP/1.1",
            b"GET http://169.254.169.254/ HTTP/1.1",
            b"BREW / HTTP/1.1",
            b"GET /v1/jobs HTTP/9.9",
            b"PRI * HTTP/2.0",
            b"POST /v1/scores HTTP/1.0",
        )
    )
    return Case("odd headers", harmless=True, raw=line + b"\r\nHost: x\r\n" + tail)


def _json() -> dict[str, str]:
    return {"Content-Type": "application/json"}


def _action(chance: random.Random) -> dict[str, str]:
    return {"Content-Type": "application/json", "Idempotency-Key": f"k{chance.randrange(10**12)}"}


FAMILIES: dict[Callable[[random.Random], Case], float] = {
    broken_table: 5,
    bomb: 2,
    odd_number: 18,
    odd_path: 20,
    wrong_token: 12,
    wrong_role: 15,
    odd_document: 18,
    odd_job: 8,
    odd_header: 10,
}
