from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minder.act.recovery.rendezvous import RendezvousHost
from minder.act.recovery.store_host import StoreHost, serve
from minder.model.errors import RecoveryError

pytestmark = pytest.mark.lab  # real torch processes: half a minute

if importlib.util.find_spec("torch") is None:  # not loaded: every quick run collects this file
    pytest.skip("needs the extra torch", allow_module_level=True)
ADDRESS = "127.0.0.71"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[RendezvousHost]:
    host = RendezvousHost.ensure(tmp_path / "state", ADDRESS)
    yield host
    host.stop()


def _listening(port: int) -> set[str]:
    """Addresses that somebody listens on at a port, in /proc's hex notation."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            address, hex_port = line.split()[1].rsplit(":", 1)
            if line.split()[3] == "0A" and int(hex_port, 16) == port:
                found.add(address)
    return found


def _set_and_get(address: str, port: int, value: str) -> str:
    from torch.distributed import TCPStore

    store = TCPStore(address, port, is_master=False)
    store.set("key", value)
    return store.get("key").decode()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads the kernel's table of sockets")
def test_a_store_listens_on_its_one_address_and_nowhere_else(host: RendezvousHost) -> None:
    address, port = host.open(1)
    expected = int.from_bytes(socket.inet_aton(ADDRESS), sys.byteorder)
    assert address == ADDRESS
    assert _listening(port) == {f"{expected:08X}"}


def test_two_generations_do_not_see_each_other(host: RendezvousHost) -> None:
    one, two = host.open(1), host.open(2)
    assert one != two
    assert host.open(1) == one
    assert _set_and_get(*one, "old") == "old"
    assert _set_and_get(*two, "new") == "new"
    host.close_before(2)
    assert host.generations() == (2,)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(one, timeout=5).close()
    assert host.open(2) == two


def test_a_closed_store_gives_back_its_descriptors(host: RendezvousHost) -> None:
    def descriptors() -> int:
        return len(list(Path(f"/proc/{host.pid()}/fd").iterdir()))

    host.open(1)
    host.close(1)
    before = descriptors()
    for generation in range(2, 12):
        host.open(generation)
        host.close_before(generation + 1)
    assert descriptors() <= before + 2


def test_the_store_outlives_a_killed_controller_and_is_found_again(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    controller = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(f"""
            import time
            from minder.act.recovery.rendezvous import RendezvousHost
            print(RendezvousHost.ensure({str(state_dir)!r}, {ADDRESS!r}).open(3)[1], flush=True)
            time.sleep(600)
        """)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert controller.stdout is not None
    port = int(controller.stdout.readline())
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    assert _set_and_get(ADDRESS, port, "still here") == "still here"
    again = RendezvousHost.ensure(state_dir, ADDRESS)
    try:
        assert again.generations() == (3,)
        assert again.open(3) == (ADDRESS, port)
        with pytest.raises(RecoveryError, match="holds open stores"):
            RendezvousHost.ensure(state_dir, "127.0.0.72")
    finally:
        again.stop()


def test_a_dead_host_is_replaced(host: RendezvousHost) -> None:
    host.open(1)
    first = host.pid()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    _, port = host.open(2)
    assert host.pid() not in (None, first)
    assert host.generations() == (2,)
    assert _set_and_get(ADDRESS, port, "x") == "x"


def test_stop_ends_the_process_and_may_be_repeated(host: RendezvousHost) -> None:
    pid = host.pid()
    host.stop()
    host.stop()
    assert not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()
    assert host.generations() == ()


def test_an_address_that_is_not_ours_is_an_error_with_a_reason(tmp_path: Path) -> None:
    host = RendezvousHost.ensure(tmp_path / "state", "192.0.2.1")
    try:
        with pytest.raises(RecoveryError, match=r"192\.0\.2\.1"):
            host.open(1)
    finally:
        host.stop()


def test_a_state_folder_with_a_long_path_works(tmp_path: Path) -> None:
    host = RendezvousHost.ensure(tmp_path / ("deep" * 20) / ("er" * 40), ADDRESS)
    try:
        assert host.open(1)[0] == ADDRESS
    finally:
        host.stop()
        host.control.parent.rmdir()


def test_nonsense_is_refused() -> None:
    host = StoreHost(ADDRESS)
    assert host.answer("open many").startswith("error")
    assert host.answer("sing").startswith("error unknown request")


def test_an_idle_host_ends_but_never_while_a_store_is_used(tmp_path: Path) -> None:
    class Used(StoreHost):
        looks = 0

        def in_use(self) -> bool:
            self.looks += 1
            return self.looks < 3

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        control.bind(str(tmp_path / "s"))
        control.listen(1)
        host = Used(ADDRESS)
        serve(host, control, idle_s=0.02)
    assert host.looks >= 3


def test_a_host_stays_while_the_controller_that_asked_lives_and_not_longer(tmp_path: Path) -> None:
    host = StoreHost(ADDRESS)
    code = "import socket, sys; c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1]); sys.stdin.read()"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        control.bind(str(tmp_path / "s"))
        control.listen(1)
        asker = subprocess.Popen([sys.executable, "-S", "-c", code, str(tmp_path / "s")], stdin=subprocess.PIPE)
        connection, _ = control.accept()
        with connection:
            host.note_asker(connection)
    lives = host.in_use()
    asker.kill()
    asker.wait()
    assert asker.stdin is not None
    asker.stdin.close()
    assert lives and not host.in_use()


def test_a_connected_worker_counts_as_use() -> None:
    from torch.distributed import TCPStore

    host = StoreHost(ADDRESS)
    port = int(host.answer("open 1").split()[1])
    assert not host.in_use()
    worker = TCPStore(ADDRESS, port, is_master=False)
    assert host.in_use()
    del worker
    deadline_s = time.monotonic() + 5
    while host.in_use() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not host.in_use()


def test_the_client_loads_no_torch() -> None:
    code = "import sys, minder.act.recovery.rendezvous, minder.edge.checkpoint.manifest as _\n"
    code += "print([m for m in ('torch', 'numpy') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
