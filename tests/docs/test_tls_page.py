"""The certificates of docs/tls.md are made as the page says, and the files of its job.toml come of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from minder.config import TlsConfig

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tls.md"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_page_makes_every_certificate_that_it_configures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    typed = [line.strip() for line in text.splitlines() if line.startswith("    openssl ")]
    done = subprocess.run(["bash", "-e", "-c", "\n".join(typed)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    (block,) = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    tls = TlsConfig(**tomllib.loads(block)["tls"])
    assert tls.context() is not None  # certificate and key belong together
    signed = ["node-0001.pem", str(tls.cert)]
    assert subprocess.run(["openssl", "verify", "-CAfile", str(tls.ca), *signed], capture_output=True, check=False).returncode == 0
    given = [name for line in text.splitlines() if line.startswith("    minder ") for name in re.findall(r"--tls-\S+ (\S+)", line)]
    assert set(given) == {"node-0001.pem", "node-0001.key", "ca.pem"} and all(Path(name).is_file() for name in given)
