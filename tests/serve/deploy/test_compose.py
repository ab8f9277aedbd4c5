"""The compose file, without a container engine: its keys are those of the Compose Specification, and what it names is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from minder.cli import VERBS, _app

FOLDER = Path(__file__).resolve().parents[3] / "serve" / "deploy"
HERE = FOLDER / "container"
FILE: dict[str, Any] = yaml.safe_load((HERE / "compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
IMAGE = (HERE / "Containerfile").read_text()
# Of the Compose Specification (compose-spec.io), with the types that it allows: those that this file may use.
TEXT, LIST, BOTH, MAP = (str,), (list,), (list, str), (list, dict)
KEYS: dict[str, tuple[type, ...]] = {
    "image": TEXT, "build": (str, dict), "command": BOTH, "entrypoint": BOTH, "ports": LIST, "volumes": LIST, "user": TEXT,
    "environment": MAP, "depends_on": MAP, "network_mode": TEXT, "networks": MAP, "restart": TEXT, "read_only": (bool,),
    "tmpfs": BOTH, "cap_drop": LIST, "cap_add": LIST, "security_opt": LIST, "healthcheck": (dict,), "working_dir": TEXT,
    "group_add": LIST, "secrets": LIST, "configs": LIST,
}  # fmt: skip
HEALTH = {"test": (list, str), "interval": (str,), "timeout": (str,), "start_period": (str,), "retries": (int,), "disable": (bool,)}
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "minder"}


def test_every_key_is_one_of_the_specification() -> None:
    assert set(FILE) <= {"name", "services", "networks", "volumes", "configs", "secrets"} and re.fullmatch(
        r"[a-z0-9][a-z0-9_-]*", FILE["name"]
    )
    for name, service in SERVICES.items():
        assert {key: type(value) for key, value in service.items() if not isinstance(value, KEYS.get(key, ()))} == {}, name
        health = service.get("healthcheck", {})
        assert {key: value for key, value in health.items() if not isinstance(value, HEALTH.get(key, ()))} == {}, name
        assert all(
            re.fullmatch(r"(\d+(us|ms|s|m|h))+", str(health[key])) for key in ("interval", "timeout", "start_period") if key in health
        )
        assert service.get("restart", "no") in ("no", "always", "on-failure", "unless-stopped")


def test_services_and_volumes_that_are_named_are_there() -> None:
    for name, service in SERVICES.items():
        mode = service.get("network_mode", "")
        assert not mode or (mode.removeprefix("service:") in set(SERVICES) - {name} and "ports" not in service), name
        assert set(service.get("depends_on", ())) <= set(SERVICES) - {name}
        for volume in service.get("volumes", ()):
            source, target, *options = volume.split(":")
            assert target.startswith("/") and options in ([], ["ro"])
            if source.startswith("."):
                assert source == "./etc" or (HERE / source).is_dir(), f"{name} mounts {source}, which is not there"
            else:
                assert source in FILE["volumes"], f"{name} names no volume of the file: {source}"


@pytest.mark.parametrize("name", OURS)
def test_a_command_is_one_that_the_command_line_takes(name: str) -> None:
    """Parsed by the real command line, with its checks of types and of options that must be given; nothing is run."""
    verb, *words = OURS[name]["command"]
    assert verb in VERBS and 'ENTRYPOINT ["minder"]' in IMAGE
    group: Any = typer.main.get_command(_app)
    context = group.get_command(None, verb).make_context(verb, list(words))
    assert all(Path(str(value)).parent == Path("/etc/minder") for value in context.params.values() if str(value).endswith(".toml"))


def test_prometheus_finds_what_it_asks_on_this_machine_s_own_addresses() -> None:
    """prometheus.yml names 127.0.0.1: who it means shares a network with it, and listens there."""
    settings = yaml.safe_load((FOLDER / "prometheus" / "prometheus.yml").read_text())
    local = {target for job in settings["scrape_configs"] for item in job.get("static_configs", ()) for target in item["targets"]}
    assert local == {"127.0.0.1:9403", "127.0.0.1:9400"}
    assert SERVICES["prometheus"]["network_mode"] == SERVICES["watch"]["network_mode"] == "service:serve"
    listen = SERVICES["serve"]["command"][SERVICES["serve"]["command"].index("--listen") + 1]
    assert listen == "0.0.0.0:9400" and {port.rsplit(":", 1)[1] for port in SERVICES["serve"]["ports"]} == {"9400", "9090"}
    files = {job["authorization"]["credentials_file"] for job in settings["scrape_configs"] if "authorization" in job}
    assert {str(Path(path).parent) for path in files} == {"/etc/minder"}
    (uid,) = re.findall(r"useradd --uid (\d+)", IMAGE)
    assert SERVICES["prometheus"]["user"].endswith(f":{uid}"), "it reads token files by the group of the image's user"


def test_a_folder_that_is_written_to_is_a_volume_or_in_memory() -> None:
    for name, service in OURS.items():
        assert service["read_only"] and "state:/var/lib/minder" in service["volumes"], name
    assert "MINDER_STATE_DIR=/var/lib/minder" in IMAGE


@pytest.mark.lab
def test_the_health_check_says_what_it_should(tmp_path: Path) -> None:
    """It is run: at a service that answers, and at none."""
    kind, program, option, script = SERVICES["serve"]["healthcheck"]["test"]
    assert (kind, program, option) == ("CMD", "python", "-c") and IMAGE.rstrip().split("FROM ")[-1].startswith("docker.io/library/python:")
    log = tmp_path / "log"
    with log.open("w") as errors:
        command = [sys.executable, "-m", "minder", "serve", "--listen", "127.0.0.1:0", "--ledger", str(tmp_path / "ledger.db")]
        process = subprocess.Popen(command, stderr=errors)
    try:
        while not (found := re.findall(r"http://127\.0\.0\.1:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
        asked = [sys.executable, "-c", script.replace(":9400", f":{found[0]}")]
        assert subprocess.run(asked, check=False, timeout=60).returncode == 0
    finally:
        process.terminate()
        process.wait(60)
    assert subprocess.run(asked, check=False, timeout=60, stderr=subprocess.DEVNULL).returncode == 1
