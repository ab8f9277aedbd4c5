"""Files of other projects are as they were published, and each says whose it is."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

import serve

VENDOR = Path(serve.__file__).parent / "static" / "vendor"


def test_every_file_is_listed_and_unmodified() -> None:
    listed = tomllib.loads((VENDOR / "VENDORED.toml").read_text(encoding="utf-8"))["file"]
    files = {path.name for path in VENDOR.iterdir()} - {"VENDORED.toml"}
    assert {item["name"] for item in listed} == {name for name in files if not name.endswith(".LICENSE")}
    for item in listed:
        assert hashlib.sha256((VENDOR / item["name"]).read_bytes()).hexdigest() == item["sha256"], item["name"]
        licence = item["licence"].partition("(")[2].rstrip(")")
        assert item["version"] and (VENDOR / licence).is_file()
