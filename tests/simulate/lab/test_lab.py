"""A lab goes away whatever ends it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from minder.model.errors import BadInputError, LabError
from minder.simulate.lab import lab as lab_module
from minder.simulate.lab.capabilities import Capabilities

OWNER = """
import sys, time
from pathlib import Path
from minder.simulate.lab.lab import Lab
with Lab(2, 0, root_dir=Path(sys.argv[1]), state_dir=Path(sys.argv[2]), mode=sys.argv[3]) as lab:
    for machine in lab.machines:
        machine.spawn([sys.executable, "-c", "import os, time\\nif os.fork() == 0: os.setsid()\\ntime.sleep(60)"])
    while any(len(machine.pids()) < 2 for machine in lab.machines):
        time.sleep(0.01)
    print(lab.run_id, flush=True)
    time.sleep(60)
"""
MODES = ["processes", pytest.param("namespaces", marks=pytest.mark.root)]


def heed_signals():
    """Who runs the tests in the background ignores these (nohup, &), and its children would inherit that."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def start_owner(tmp_path, is_root):
    owners = []

    def start(mode):
        if mode == "namespaces" and not is_root:
            pytest.skip("needs root")
        command = [sys.executable, "-c", OWNER, str(tmp_path / "lab"), str(tmp_path / "state"), mode]
        owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=heed_signals)
        owners.append(owner)
        return owner, owner.stdout.readline().strip()

    yield start
    for owner in owners:
        owner.send_signal(signal.SIGTERM)
        owner.wait(20)
        owner.stdout.close()


@pytest.mark.parametrize("mode", MODES)
def test_names_are_unique_per_run(make_lab, mode, is_root):
    if mode == "namespaces" and not is_root:
        pytest.skip("needs root")
    with make_lab(1, mode=mode) as first, make_lab(1, mode=mode) as second:
        machines = [*first.machines, *second.machines]
        assert len({machine.name for machine in machines}) == 2
        assert len({machine.address for machine in machines}) == 2
        assert first.run_id in first.machines[0].name


@pytest.mark.parametrize("mode", MODES)
def test_an_exception_takes_the_lab_away(make_lab, mode, traces, is_root):
    if mode == "namespaces" and not is_root:
        pytest.skip("needs root")
    with pytest.raises(ZeroDivisionError), make_lab(2, mode=mode) as lab:
        lab.machines[0].spawn(["sleep", "60"])
        run_id = lab.run_id
        raise ZeroDivisionError
    assert traces(run_id) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("mode", MODES)
def test_a_signal_takes_the_lab_away(start_owner, traces, mode, number, tmp_path):
    owner, run_id = start_owner(mode)
    assert traces(run_id) != []
    owner.send_signal(number)
    assert owner.wait(20) != 0
    assert traces(run_id) == []
    assert list((tmp_path / "state" / "labs").iterdir()) == []


@pytest.mark.parametrize("mode", MODES)
def test_clean_removes_what_a_killed_owner_left_and_no_running_lab(start_owner, traces, mode, tmp_path):
    from minder.simulate.lab.clean import clean_labs

    killed, killed_id = start_owner(mode)
    running, running_id = start_owner(mode)
    before = traces(running_id)
    memory = [Path("/dev/shm") / f"mdr{run_id}m0" for run_id in (killed_id, running_id)]
    for folder in memory:
        folder.mkdir()  # as a checkpoint cache leaves it
    killed.kill()
    killed.wait()
    assert traces(killed_id) != []
    report = clean_labs(tmp_path / "state")
    assert traces(killed_id) == []
    assert [folder.exists() for folder in memory] == [False, True]
    assert report.removed[killed_id] != []
    assert running_id in report.running
    assert traces(running_id) == before
    assert running.poll() is None


@pytest.mark.parametrize("mode", MODES)
def test_clean_knows_the_owner_without_the_record(start_owner, traces, mode, tmp_path):
    from minder.simulate.lab.clean import clean_labs

    owner, run_id = start_owner(mode)
    elsewhere = tmp_path / "another-state"
    before = traces(run_id)
    assert run_id in clean_labs(elsewhere).running
    assert traces(run_id) == before
    owner.kill()
    owner.wait()
    assert run_id in clean_labs(elsewhere).removed
    assert traces(run_id) == []


def test_a_reused_pid_is_not_the_owner(tmp_path, make_lab):
    from minder.simulate.lab.clean import clean_labs
    from minder.simulate.lab.record import LabRecord, Owner

    us = Owner.current()
    for run_id, owner in (("aaa1", us), ("aaa2", Owner(us.pid, us.start_ticks - 1, us.pid_namespace))):
        assert LabRecord(run_id, "processes", str(owner), str(tmp_path)).create(tmp_path)
    report = clean_labs(tmp_path)
    assert "aaa1" in report.running
    assert "aaa2" in report.removed
    assert [path.stem for path in (tmp_path / "labs").iterdir()] == ["aaa1"]


def test_a_run_id_is_taken_once(make_lab):
    with (
        make_lab(1, mode="processes", run_id="ab12"),
        pytest.raises(BadInputError, match="exists already"),
        make_lab(1, run_id="ab12", mode="processes"),
    ):
        pass


@pytest.mark.parametrize("run_id", ["", "mdr", "12345", "xyz!"])
def test_a_run_id_that_could_match_other_labs_is_refused(make_lab, run_id):
    with pytest.raises(BadInputError, match="four hex digits"):
        make_lab(1, run_id=run_id)


def test_where_namespaces_are_refused_auto_falls_back_and_namespaces_says_why(make_lab, monkeypatch):
    refused = {"namespaces": "Operation not permitted", "cgroups": "Read-only file system"}
    monkeypatch.setattr(lab_module, "find_capabilities", lambda: Capabilities(refused=refused))
    with make_lab(1, mode="auto") as lab:
        assert lab.mode == "processes"
    with pytest.raises(BadInputError, match="Operation not permitted"), make_lab(1, mode="namespaces"):
        pass


@pytest.mark.root
def test_a_build_that_fails_half_way_leaves_nothing(make_lab, monkeypatch, traces, tmp_path):
    from minder.simulate.lab.cgroup import Cgroup

    def fail(self):
        if self.name.endswith("m1"):
            raise LabError("cannot create cgroup: no space left")
        os.sched_yield()

    monkeypatch.setattr(Cgroup, "create", fail)
    monkeypatch.setattr(lab_module, "find_capabilities", Capabilities)
    with pytest.raises(LabError, match="no space left"), make_lab(2, mode="namespaces", run_id="fa11"):
        pass
    assert traces("fa11") == []


def ask(url, token):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.lab
def test_agents_and_launchers_run_on_their_machines_addresses_and_see_only_them(make_lab, mode, tmp_path, wait_until):
    token_file, token = tmp_path / "token", "0123456789abcdef0123"
    token_file.write_text(token)
    token_file.chmod(0o600)
    script = tmp_path / "script.py"
    script.write_text("")

    def answers(url):
        try:
            return ask(url, token)
        except OSError:
            return ""

    with make_lab(2, mode=mode) as lab:
        for machine in lab.machines:
            lab.start_agent(machine, token_file, 9401, ["--gpu", "off"])
            lab.start_launcher(machine, token_file, 9402, ["--job", "job", "--", str(script)])
        for machine in lab.machines:
            wait_until(lambda url=f"http://{machine.address}:9401/v1/health": answers(url), 30)
            wait_until(lambda url=f"http://{machine.address}:9402/v1/state": answers(url), 30)
            assert machine.name in ask(f"http://{machine.address}:9402/v1/state", token)
            metrics = ask(f"http://{machine.address}:9401/metrics", token)
            devices = set(re.findall(r'minder_tcp_receive_bytes_total{device="(\w+)"}', metrics))
            assert devices == ({"data0", "mgmt0"} if mode == "namespaces" else set())
