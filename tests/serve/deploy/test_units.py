"""systemd units and container files: they name commands and options that exist, and systemd takes the units as they are."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from minder.cli import main

FOLDER = Path(__file__).resolve().parents[3] / "serve/deploy"
UNITS = sorted((FOLDER / "systemd").glob("*.service"))


def commands() -> list[str]:
    found = [line for unit in UNITS for line in re.findall(r"^ExecStart=\S+ (.*)$", unit.read_text(), re.MULTILINE)]
    compose = yaml.safe_load((FOLDER / "container/compose.yml").read_text())
    return found + [" ".join(service["command"]) for service in compose["services"].values() if "command" in service]


@pytest.mark.parametrize("command", commands())
def test_units_and_containers_type_what_the_command_line_takes(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = command.split()
    assert main([words[0], "--help"]) == 0
    text = capsys.readouterr().out
    assert {word for word in words if word.startswith("--") and word not in text} == set()


def _state_page(begin: str, end: str) -> str:
    page = (FOLDER.parents[1] / "docs/state.md").read_text()
    return textwrap.dedent("        " + begin + page.split("        " + begin)[1].split(end)[0])


def _slurm() -> tuple[str, dict[str, str]]:
    line = _state_page("srun --overlap", " &\n")
    begin = 'srun() { while [[ $1 == --* ]]; do shift; done; "$@"; }\n'
    return begin + line, {"JOB": "llm-70b", "SHARED": "/shared", "SLURMD_NODENAME": "node-1"}


def _kubernetes() -> tuple[str, dict[str, str]]:
    pod = yaml.safe_load(_state_page("volumes:", "\n\n"))
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always", "else the pod waits for its end"
    assert [mount["name"] for mount in sidecar["volumeMounts"]] == [volume["name"] for volume in pod["volumes"]]
    assert pod["volumes"][0]["emptyDir"]["medium"] == "Memory"
    return shlex.join(sidecar["command"]), {variable["name"]: "10.0.0.1" for variable in sidecar["env"]}


@pytest.mark.parametrize("lines", [_slurm, _kubernetes])
def test_the_pages_lines_for_a_cache_are_what_a_shell_and_the_command_line_take(
    lines: Callable[[], tuple[str, dict[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, variables = lines()
    fake = tmp_path / "minder"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    done = subprocess.run(
        ["bash", "-euc", script], env={"PATH": f"{tmp_path}:/usr/bin:/bin", **variables}, capture_output=True, text=True, check=True
    )
    words = done.stdout.splitlines()
    monkeypatch.setenv("COLUMNS", "200")
    assert words[0] == "cache" and main(["cache", "--help"]) == 0
    known = capsys.readouterr().out
    given = dict(zip(words[1::2], words[2::2], strict=True))
    assert all(option in known and value for option, value in given.items())
    assert {"--job", "--machine", "--listen", "--token-file", "--max-bytes"} <= set(given)
    assert given["--listen"].endswith(":9403") and not given["--listen"].startswith(":")


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_are_hardened(unit: Path) -> None:
    text = unit.read_text()
    for line in (
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "RestrictSUIDSGID=yes",
        "ProtectControlGroups=yes",
        "SystemCallArchitectures=",
    ):
        assert line in text, line
    if "agent" not in unit.name:  # an agent looks into other people's processes
        assert "User=minder" in text and "CapabilityBoundingSet=\n" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: apt-get install systemd)")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/minder/bin/minder", "/bin/true"))
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True, check=False, timeout=60)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "minder" in line]
    assert ours == []


def test_the_compose_file_publishes_nothing_beyond_this_machine() -> None:
    compose = yaml.safe_load((FOLDER / "container/compose.yml").read_text())
    for name, service in compose["services"].items():
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert service.get("read_only") is True and service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name


def test_the_image_runs_as_nobody_in_particular() -> None:
    text = (FOLDER / "container/Containerfile").read_text()
    instructions = [line.split()[0] for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip() and not line.startswith("#")]
    known = {"FROM", "RUN", "COPY", "USER", "ENV", "ENTRYPOINT", "CMD", "ARG", "VOLUME", "EXPOSE", "WORKDIR", "LABEL", "HEALTHCHECK"}
    assert set(instructions) <= known and instructions[0] in ("FROM", "ARG") and "ENTRYPOINT" in instructions
    users = re.findall(r"^USER (\S+)", text, re.MULTILINE)
    assert users and users[-1] not in ("root", "0")
