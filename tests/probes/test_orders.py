"""Orders of probes: by id and hash, one at a time, once per operation, never beside a job unless forced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from minder.edge.agent.options import parse_retest_probes
from minder.edge.agent.retest import RetestRequest, Retests
from minder.edge.probes import orders as orders_module
from minder.edge.probes.contract import Probe, Program, find_programs
from minder.edge.probes.orders import ProbeOrder, Probing, Run, parse_probes, refusal, run_programs
from minder.edge.probes.settings import Restored, read_gpus, write_gpus
from minder.model.errors import BadInputError

DOCUMENT = {
    "probe": "disk",
    "version": 1,
    "state": "measured",
    "measures": [{"name": "rate", "value": 5, "unit": "B/s", "better": "higher"}],
}


def program(folder: Path, name: str = "disk", code: str = "", changes: tuple[str, ...] = ()) -> Program:
    path = folder / f"{name}.py"
    path.write_text(code or f"print({json.dumps({**DOCUMENT, 'probe': name})!r})")
    return Program(Probe(name, 1, "a test", 20.0, changes=changes), path)


def body(*programs: Program, **more: Any) -> dict[str, Any]:
    return {"operation": "probes-1", "wait_s": 20, "probes": [{"id": item.probe.name, "sha256": item.sha256} for item in programs], **more}


def ask(probing: Probing, wanted: dict[str, Any], disturbed: str = "", received_s: float = 0.0) -> dict[str, Any]:
    return asyncio.run(probing.ask(parse_probes(wanted), disturbed, received_s))


def test_probes_that_are_ordered_by_id_and_hash_run_one_after_the_other(tmp_path: Path) -> None:
    both = [program(tmp_path, name) for name in ("disk", "gemm")]
    found = ask(Probing(programs={item.probe.name: item for item in both}), body(*both))
    assert (found["state"], [result["probe"] for result in found["results"]]) == ("done", ["disk", "gemm"])
    assert [result["sha256"] for result in found["results"]] == [item.sha256 for item in both]


@pytest.mark.parametrize(
    ("name", "sha256", "why"),
    [("fan", "0" * 64, 'no probe "fan": this machine has disk'), ("disk", "0" * 64, "is not the one that was ordered (000000000000)")],
)
def test_an_unknown_id_or_another_hash_is_refused_in_one_line_and_nothing_runs(tmp_path: Path, name: str, sha256: str, why: str) -> None:
    ran = tmp_path / "ran"
    good = program(tmp_path, code=f"open({str(ran)!r}, 'w')")
    wanted = body(good)
    wanted["probes"].append({"id": name, "sha256": sha256})
    found = ask(Probing(programs={"disk": good}), wanted)
    assert found["state"] == "refused" and why in found["detail"] and "\n" not in found["detail"] and found["results"] == []
    assert not ran.exists()


def test_the_hash_is_that_of_the_file_that_runs() -> None:
    programs = find_programs()
    orders = [ProbeOrder(name, item.sha256) for name, item in programs.items()]
    assert refusal(orders, programs) == ""


def test_a_machine_that_trains_is_not_disturbed_unless_it_is_forced_and_then_at_low_priority(tmp_path: Path) -> None:
    nice = program(tmp_path, code="import os, sys; print(os.environ.get('x', '')); sys.exit(int(sys.argv[sys.argv.index('--nice') + 1]))")
    busy = "training processes of llm run on this machine (ranks 0)"
    found = ask(Probing(programs={"disk": nice}), body(nice), busy)
    assert found["state"] == "refused" and found["detail"].startswith(busy) and "order with force" in found["detail"]
    found = ask(Probing(programs={"disk": nice}), body(nice, force=True), busy)
    assert found["results"][0]["detail"].startswith("it ended with status 10")


def test_an_operation_runs_once_and_one_at_a_time(tmp_path: Path) -> None:
    waits = program(
        tmp_path,
        code=f"import os, time\nopen({str(tmp_path / 'runs')!r}, 'a').write('x')\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.02)\nprint({json.dumps(DOCUMENT)!r})",
    )

    async def play() -> list[dict[str, Any]]:
        probing = Probing(programs={"disk": waits})
        begun = await probing.ask(parse_probes(body(waits, wait_s=0)), "", 0.0)
        other = await probing.ask(parse_probes(body(waits, operation="b", wait_s=0)), "", 0.0)
        retest = await Retests((), 60.0, ("disk",), probing).ask(RetestRequest("r", 0.0), False)
        (tmp_path / "go").touch()
        ended = await probing.ask(parse_probes(body(waits)), "training processes", 0.0)
        again = await probing.ask(parse_probes(body(waits)), "", 0.0)
        return [begun, other, retest, ended, again]

    found = asyncio.run(play())
    assert [item["state"] for item in found] == ["running", "refused", "refused", "done", "done"]
    assert "another test" in found[1]["detail"] and (tmp_path / "runs").read_text() == "x"


def test_what_runs_is_ended_when_the_agent_ends(tmp_path: Path) -> None:
    waits = program(tmp_path, code="import time; time.sleep(600)")

    async def play() -> dict[str, Any]:
        probing = Probing(programs={"disk": waits})
        await probing.ask(parse_probes(body(waits, wait_s=0.3)), "", 0.0)
        await probing.close()
        return await probing.ask(parse_probes(body(waits, wait_s=0)), "", 0.0)

    assert asyncio.run(asyncio.wait_for(play(), 20.0))["state"] == "refused"


@pytest.mark.parametrize(
    "wrong",
    [
        None, [], {}, {"operation": ""}, {"probes": []}, {"probes": [{}]}, {"probes": [{"id": "disk"}]}, {"probes": "disk"},
        {"probes": [{"id": "disk", "sha256": "x"}]}, {"probes": [{"id": "disk", "sha256": "0" * 64, "limit_s": "long"}]},
        {"wait_s": 1e9}, {"force": "yes"}, {"controller_time_s": "now"}, {"round_trip_s": float("nan")},
    ],
)  # fmt: skip
def test_what_is_no_order_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(BadInputError):
        parse_probes({**body(program(tmp_path)), **wrong} if wrong and isinstance(wrong, dict) else wrong)


def test_the_controllers_time_reaches_the_probe_with_the_time_of_receipt(tmp_path: Path) -> None:
    programs = find_programs(("clock",))
    found = ask(Probing(programs=programs), body(programs["clock"], controller_time_s=1000.0, round_trip_s=0.4), received_s=1030.2)
    values = {item["name"]: item["value"] for item in found["results"][0]["measures"]}
    assert values["clock_offset"] == pytest.approx(30.0), found


# settings


class NvmlError(Exception):
    pass


class FakeNvml:
    """One GPU whose settings can be set; what stands in `refused` cannot."""

    NVMLError = NvmlError

    def __init__(self, refused: tuple[str, ...] = ()) -> None:
        self.power, self.compute, self.persistence, self.clocks, self.refused = 350_000, 0, 1, [1593, 1980], refused

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPowerManagementLimit(self, handle: int) -> int:
        return self.power

    def nvmlDeviceSetPowerManagementLimit(self, handle: int, value: int) -> None:
        if "power" in self.refused:
            raise NvmlError("Insufficient Permissions")
        self.power = value

    def nvmlDeviceGetComputeMode(self, handle: int) -> int:
        return self.compute

    def nvmlDeviceSetComputeMode(self, handle: int, value: int) -> None:
        self.compute = value

    def nvmlDeviceGetPersistenceMode(self, handle: int) -> int:
        raise NvmlError("not supported")

    def nvmlDeviceGetApplicationsClock(self, handle: int, kind: int) -> int:
        return self.clocks[0 if kind == 2 else 1]

    def nvmlDeviceSetApplicationsClocks(self, handle: int, memory: int, graphics: int) -> None:
        self.clocks = [memory, graphics]


def test_settings_that_a_probe_left_otherwise_are_put_back_and_told() -> None:
    nvml = FakeNvml()
    saved = json.loads(json.dumps(read_gpus(nvml)))
    nvml.power, nvml.clocks = 700_000, [1593, 1200]
    found = write_gpus(nvml, saved)
    assert (nvml.power, nvml.clocks, found.failed) == (350_000, [1593, 1980], ())
    assert found.changed == ("gpu0 power limit 700000, was 350000", "gpu0 application clocks [1593, 1200], was [1593, 1980]")
    assert write_gpus(nvml, saved) == Restored()


def test_a_setting_that_cannot_be_put_back_is_told() -> None:
    nvml = FakeNvml(refused=("power",))
    saved = read_gpus(nvml)
    nvml.power = 700_000
    assert write_gpus(nvml, saved).failed == ("gpu0 power limit 700000, was 350000: Insufficient Permissions",)


@pytest.mark.parametrize(
    ("restored", "state", "said"),
    [
        (Restored(("gpu0 power limit 7, was 3",)), "measured", "settings were restored: gpu0 power limit 7, was 3"),
        (Restored((), ("gpu0 power limit 7, was 3: no permission",)), "not_judged", "settings that it changed are not restored"),
    ],
)
def test_a_probe_whose_settings_are_not_put_back_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored: Restored, state: str, said: str
) -> None:
    seen = []

    async def save(kinds: tuple[str, ...]) -> dict[str, Any]:
        seen.append(kinds)
        return {"gpu0": {}}

    async def restore(saved: Any) -> Restored:
        seen.append(saved)
        return restored

    monkeypatch.setattr(orders_module, "save", save)
    monkeypatch.setattr(orders_module, "restore", restore)
    (found,) = asyncio.run(run_programs([Run(program(tmp_path, changes=("gpu",)))], {}))
    assert found.state == state and said in found.detail and seen == [("gpu",), {"gpu0": {}}]


def test_without_a_driver_there_is_nothing_to_keep() -> None:
    from minder.edge.probes.settings import restore, save

    assert asyncio.run(save(("gpu",))) == {} and asyncio.run(restore({})) == Restored()


# the agent's own retest


def test_probes_stand_in_for_the_sites_command(tmp_path: Path) -> None:
    good, bad = (
        program(tmp_path),
        program(tmp_path, "gemm", f"print({json.dumps({**DOCUMENT, 'probe': 'gemm', 'state': 'failed', 'detail': 'wrong'})!r})"),
    )
    probing = Probing(programs={"disk": good, "gemm": bad})
    found = asyncio.run(Retests((), 60.0, ("disk",), probing).ask(RetestRequest("r1", 30.0), False))
    assert (found["state"], [item["probe"] for item in found["results"]]) == ("measured", ["disk"])
    found = asyncio.run(Retests((), 60.0, ("disk", "gemm"), probing).ask(RetestRequest("r2", 30.0), False))
    assert (found["state"], found["detail"]) == ("failed", "gemm: wrong") and len(found["results"]) == 2


def test_the_names_of_a_retest_are_checked_at_the_agents_start() -> None:
    assert parse_retest_probes("disk, gemm", ()) == ("disk", "gemm") and parse_retest_probes(None, ("x",)) == ()
    with pytest.raises(BadInputError, match='no probe "fan"'):
        parse_retest_probes("fan", ())
    with pytest.raises(BadInputError, match="give one of them"):
        parse_retest_probes("disk", ("true",))


def test_beside_waiting_workers_probes_run_at_low_priority_and_give_way_to_any_other_order(tmp_path: Path) -> None:
    vacated: list[str] = []

    @asynccontextmanager
    async def alone() -> AsyncIterator[None]:
        vacated.append("x")
        yield

    waits = program(tmp_path, code="import time; time.sleep(600)")
    rate = program(tmp_path, "gemm")

    async def play() -> list[dict[str, Any]]:
        probing = Probing(programs={"disk": waits, "gemm": rate}, alone=alone)
        low = await probing.ask(parse_probes(body(rate, operation="low", beside=True)), "", 0.0)
        begun = await probing.ask(parse_probes(body(waits, operation="beside", beside=True, wait_s=0)), "", 0.0)
        other = await probing.ask(parse_probes(body(rate, operation="diagnose")), "", 0.0)
        ended = await probing.ask(parse_probes(body(waits, operation="beside", beside=True, wait_s=0)), "", 0.0)
        return [low, begun, other, ended]

    low, begun, other, ended = asyncio.run(asyncio.wait_for(play(), 30.0))
    assert [item["state"] for item in (low, begun, other, ended)] == ["done", "running", "done", "refused"]
    assert low["results"][0]["facts"] == {"priority": "low"} and other["results"][0]["facts"] == {}, "speeds of two kinds are not compared"
    assert vacated == ["x"], "only for the order that is not beside"


def test_a_probe_that_changes_settings_never_runs_beside_waiting_workers(tmp_path: Path) -> None:
    changes = program(tmp_path, changes=("gpu",))
    found = ask(Probing(programs={"disk": changes}), body(changes, beside=True))
    assert found["state"] == "refused" and "may change settings" in found["detail"]
