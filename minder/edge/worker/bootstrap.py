"""How every worker process starts: `python -m minder.edge.worker.bootstrap [-m] SCRIPT ARGS...`, as a child of the launcher.

It dies with the launcher (an unsupervised worker would be an orphan that holds ports, memory and devices), opens the control
channel and the heartbeat page, imports torch and MINDER_PRELOAD, initialises its GPU if it is to (MINDER_START_DEVICE), waits at the
barrier (MINDER_BARRIER=bootstrap) or leaves that to the script's `minder.run` (MINDER_BARRIER=script), and runs the script as __main__.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import sys
import traceback
from pathlib import Path

from minder.edge.worker import pulse
from minder.edge.worker.control import Assignment, Control, connect
from minder.edge.worker.device import allow_abort, start_device
from minder.edge.worker.dumps import keep_dumps
from minder.model.children import end_with_parent


def main(arguments: list[str]) -> int:
    """Run one worker to its end; its exit status."""
    if not arguments:
        print("usage: python -m minder.edge.worker.bootstrap [-m] SCRIPT ARGS...", file=sys.stderr)
        return 2
    _die_with_parent()
    control = connect()
    pulse.switch_page(_claim_page(), -1, -1)
    keep_dumps()
    if os.environ.get("MINDER_BARRIER") == "script":
        allow_abort()
    if control is not None:
        control.start()
    _preload()
    if not _start_device():
        return 1
    gc.freeze()  # what is loaded now stays: later collections (one at every in-place restart) skip it
    assignment: Assignment | None = None
    if control is not None and os.environ.get("MINDER_BARRIER", "bootstrap") == "bootstrap":
        assignment = _wait(control)
        if assignment is None:
            return 0
    return _run_script(control, assignment, arguments)


def _wait(control: Control) -> Assignment | None:
    from minder.edge.worker.barrier import apply_environment

    assignment = control.next_assignment(-1)
    if assignment is not None:
        apply_environment(assignment)
        control.send("running", generation=assignment.generation, in_place=False)
        control.pending = assignment  # a script that calls minder.run goes on with this place
    return assignment


def _run_script(control: Control | None, assignment: Assignment | None, arguments: list[str]) -> int:
    try:
        _execute(arguments)
    except SystemExit as end:
        if control is not None and assignment is not None and end.code in (None, 0):
            control.send("done", generation=assignment.generation)
        elif control is not None:
            _report(control, assignment, end)
        raise
    except Exception as error:  # noqa: BLE001 - entry point: the script's own failure is printed, reported, and ends the process
        traceback.print_exc()
        if control is not None:
            _report(control, assignment, error)
        return 1
    if control is not None and assignment is not None:
        control.send("done", generation=assignment.generation)
    elif control is not None and "minder.edge.worker.barrier" not in sys.modules:
        print(f"minder: {arguments[0]} ended without minder.run(main): launch it with --barrier bootstrap", file=sys.stderr)
    return 0


def _report(control: Control, assignment: Assignment | None, error: BaseException) -> None:
    """What ended the script, once; of a bare exit there is nothing to report but its code."""
    from minder.edge.worker.barrier import report_exception
    from minder.edge.worker.cause import speaking

    if not getattr(error, "__minder_reported__", False) and not isinstance(speaking(error), SystemExit):
        report_exception(control, error, assignment.generation if assignment is not None else -1)


def _execute(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, os.environ.get("MINDER_CODE_DIR") or str(Path.cwd()))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = list(arguments)
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    runpy.run_path(arguments[0], run_name="__main__")


def _preload() -> None:
    """Import what takes time before there is anything to do. A missing torch is the script's affair."""
    for name in ["torch", "torch.distributed", *os.environ.get("MINDER_PRELOAD", "").split(",")]:
        if not name:
            continue
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"minder: preload of {name}: {error}", file=sys.stderr, flush=True)


def _start_device() -> bool:
    """A process whose GPU does not start ends before the barrier: its machine is no standby."""
    index = os.environ.pop("MINDER_START_DEVICE", "")
    why = start_device(int(index)) if index else ""
    if why:
        print(f"minder: GPU {index} does not start: {why}", file=sys.stderr, flush=True)
    return not why


def _claim_page() -> str | None:
    os.environ["MINDER_HEARTBEAT_PID"] = str(os.getpid())
    return os.environ.get("MINDER_HEARTBEAT_FILE")


def _die_with_parent() -> None:
    """The kernel kills us when the launcher's thread that started us dies; if it is dead already, leave at once."""
    launcher = os.environ.pop("MINDER_LAUNCHER_PID", None)
    if launcher is None:
        return
    end_with_parent()
    if os.getppid() != int(launcher):
        os._exit(1)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        sys.path.pop(0)  # the folder that -m put there: the script's own folder takes its place
    sys.exit(main(sys.argv[1:]))
