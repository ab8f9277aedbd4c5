from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from minder.ingest.sources.events import read_truths
from minder.ingest.sources.recording import read_recording
from minder.model.errors import BadInputError, LabError, UnsupportedFaultError
from minder.simulate.demo import present as module
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.present import make_run_folder, note_truth, present
from minder.simulate.lab.record import default_state_dir, read_records
from minder.simulate.lab.reference import Comparison

EQUAL = Comparison(True, None, 60, "60 losses and the final parameters agree bit for bit")


def test_no_run_touches_an_earlier_one(tmp_path: Path) -> None:
    root = tmp_path / "demo-out"
    first = make_run_folder(root, "hang", 0)
    (first / "report.md").write_text("kept")
    names = [first.name, *(make_run_folder(root, "hang", 0).name for _ in range(2)), make_run_folder(root, "hang", 7).name]
    assert names == ["hang-seed0-1", "hang-seed0-2", "hang-seed0-3", "hang-seed7-1"]
    assert (first / "report.md").read_text() == "kept"


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match=r"--out .*file.* cannot be written"):
        make_run_folder(tmp_path / "file", "hang", 0)


def played_story(monkeypatch, told, comparison=EQUAL):  # type: ignore[no-untyped-def]
    """play() becomes the story, in whichever folder the run was given."""

    def play(options, show, **unused):  # type: ignore[no-untyped-def]
        told.options.out.rename(options.out.absolute() / "story")
        for part in (options.out / "story").iterdir():
            part.rename(options.out / part.name)
        told.options = options
        show(told, "fault injected")
        return told.played(options=options)

    monkeypatch.setattr(module, "play", play)
    monkeypatch.setattr(module, "compare_with_undisturbed", lambda options: comparison)
    return DemoOptions("hang", out=told.options.out.parent / "out")


def test_json_is_one_document_and_nothing_else(monkeypatch, told, capsys) -> None:  # type: ignore[no-untyped-def]
    assert present(played_story(monkeypatch, told), as_json=True) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["right"], document["machine"], document["evicted"]) == (True, "lab-86b2-m2", ["lab-86b2-m2"])
    assert err == ""
    for name in ("report", "json", "picture", "ledger", "recording"):
        assert Path(document["files"][name]).exists(), name


def test_text_ends_with_the_report(monkeypatch, told, capsys) -> None:  # type: ignore[no-untyped-def]
    assert present(played_story(monkeypatch, told)) == 0
    out = capsys.readouterr().out
    assert "minder demo: hang in lab-86b2-m2, seed 0: as it must be" in out
    assert 'minder machine return lab-86b2-m2 --note "undoes' in out and '" --ledger' in out
    assert "\x1b" not in out


def test_losses_that_differ_end_with_status_1(monkeypatch, told, capsys) -> None:  # type: ignore[no-untyped-def]
    options = played_story(monkeypatch, told, Comparison(False, 31, 30, "step 31, generation 2: loss a instead of b"))
    assert present(options) == 1
    assert "step 31, generation 2: loss a instead of b" in capsys.readouterr().out


def test_a_run_whose_losses_cannot_be_compared_is_reported_and_ends_with_status_1(monkeypatch, told, capsys) -> None:  # type: ignore[no-untyped-def]
    options = played_story(monkeypatch, told)

    def fail(options):  # type: ignore[no-untyped-def]
        raise LabError("the undisturbed run failed with status 1")

    monkeypatch.setattr(module, "compare_with_undisturbed", fail)
    assert present(options, as_json=True) == 1
    assert "the undisturbed run failed" in json.loads(capsys.readouterr().out)["wrong"][0]


def test_a_recording_that_is_missing_costs_the_picture_and_no_more(monkeypatch, told, capsys) -> None:  # type: ignore[no-untyped-def]
    shutil.rmtree(told.folder / "recording")
    assert present(played_story(monkeypatch, told), as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert "picture" not in document["files"]
    assert len(document["trouble"]) == 2


def test_a_fault_that_cannot_be_injected_leaves_no_folder(monkeypatch, tmp_path: Path) -> None:
    def refuse(options, show, **unused):  # type: ignore[no-untyped-def]
        raise UnsupportedFaultError("fault oom cannot be injected here: no cgroups")

    monkeypatch.setattr(module, "play", refuse)
    with pytest.raises(UnsupportedFaultError) as error:
        present(DemoOptions("oom", out=tmp_path))
    assert error.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--reuid=0", "--regid=0", "--keep-groups"]  # root in name only


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv (Debian: util-linux)")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--fault", "dead-link"], "fault dead-link needs machines made of network namespaces and cgroups"),
        (["--fault", "slow-link"], "fault slow-link needs machines made of network namespaces and cgroups"),
        (["--fault", "slow-cpu"], "fault slow-cpu needs machines made of network namespaces and cgroups"),
        (["--fault", "oom"], "fault oom needs machines made of network namespaces and cgroups"),
        (["--fault", "none", "--mode", "namespaces"], "machines cannot be network namespaces here"),
    ],
)
@pytest.mark.lab
def test_what_the_kernel_refuses_is_refused_with_the_reason(words: list[str], told: str, tmp_path: Path) -> None:
    """Really without its rights: status 2, one line, nothing left."""
    command = [
        *(WITHOUT_RIGHTS if os.getuid() == 0 else []),
        sys.executable,
        "-m",
        "minder",
        "demo",
        *words,
        "--out",
        str(tmp_path / "out"),
        "--format",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, "MINDER_STATE_DIR": str(tmp_path)})
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert told in line and any(reason in line for reason in ("permitted", "denied", "cannot", "refused"))
    assert list((tmp_path / "out").iterdir()) == [] and list(tmp_path.glob("labs/*")) == []


def test_an_earlier_recording_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "job.toml").write_text("")
    with pytest.raises(BadInputError, match=r"--record .*rec"):
        present(DemoOptions("hang", out=tmp_path / "out", record=tmp_path / "rec"))
    assert not (tmp_path / "out").exists()


def test_the_truth_of_a_recording(told) -> None:  # type: ignore[no-untyped-def]
    recording = told.folder / "recording"
    note_truth(recording, told.played())
    (truth,) = read_truths(recording / "truth.json")
    assert (truth.recording, truth.fault, truth.machine, truth.end_s) == ("recording", "hang", "lab-86b2-m2", None)
    assert truth.onset_s == told.injected.time_s
    assert read_recording(recording).machines[2] == "lab-86b2-m2"


@pytest.mark.parametrize("fault", ["none", "agent-lost"])
def test_where_no_machine_is_sick_the_truth_is_that_nobody_may_be_accused(told, fault: str) -> None:  # type: ignore[no-untyped-def]
    recording = told.folder / "recording"
    note_truth(recording, told.played(options=replace(told.options, fault=fault), target=None))
    (truth,) = read_truths(recording / "truth.json")
    assert (truth.fault, truth.machine, truth.onset_s, truth.machines) == (None, None, None, ())


@pytest.mark.lab
@pytest.mark.timeout(420)
def test_a_hang_is_found_replaced_and_trained_on_bit_for_bit(tmp_path: Path) -> None:
    """The whole command, for real."""
    command = [sys.executable, "-m", "minder", "demo", "--fault", "hang", "--format", "json", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=dict(os.environ))
    document = json.loads(done.stdout)
    assert done.returncode == 0, document["wrong"]
    assert document["machine"].endswith("-m2")
    assert document["evicted"] == [document["machine"]]
    assert document["losses"]["equal"] is True
    assert document["losses"]["steps_compared"] == 60
    assert Path(document["files"]["picture"]).stat().st_size > 20_000
    replayed = subprocess.run(
        [sys.executable, "-m", "minder", "replay", document["files"]["recording"]], capture_output=True, text=True, timeout=100, check=False
    )
    assert replayed.returncode == 0, replayed.stderr


@pytest.mark.lab
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_takes_everything_down(tmp_path: Path, number: int, status: int) -> None:
    """Processes that it left behind would fail the whole test run (tests/conftest.py)."""
    command = [sys.executable, "-m", "minder", "demo", "--fault", "none", "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=allow_interrupts) as demo:
        assert demo.stdout is not None
        job = next(line for line in demo.stdout if " lab lab-" in line).split(" lab ")[1].split(":")[0]
        assert any(record.run_id == job.removeprefix("lab-") for record in read_records(default_state_dir()))
        demo.send_signal(number)
        assert demo.wait(60) == status
    assert not any(record.run_id == job.removeprefix("lab-") for record in read_records(default_state_dir()))


def allow_interrupts() -> None:
    """A test run in the background of a script ignores them, and so would what it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
