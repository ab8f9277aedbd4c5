"""The launcher process: one event loop for HTTP and supervision."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
from collections.abc import Iterator

import uvicorn

from minder.edge.launcher.endpoints import build_endpoints
from minder.edge.launcher.register import Register
from minder.edge.launcher.settings import LaunchSettings
from minder.edge.launcher.spawn import find_groups
from minder.edge.launcher.supervisor import Supervisor
from minder.edge.listening import Doorway, PatientLoop, serving_options
from minder.model.errors import BadInputError
from minder.model.log import event, say
from minder.model.private import make_meeting, make_private
from minder.wire.own_token import warn_of_shared

__all__ = ["serve"]

_log = logging.getLogger("minder.launcher")


def serve(settings: LaunchSettings) -> None:
    """Run until SIGTERM or SIGINT; then end the workers. Raises BadInputError if the port or the job is taken or the cgroup missing."""
    if settings.cgroup:
        try:
            find_groups(settings.cgroup)
        except OSError as error:
            raise BadInputError(f"--cgroup: {error}") from error
    listener = _listen(settings.host, settings.port)
    warn_of_shared(settings.token, settings.machine, _log)
    make_meeting(settings.run_dir, settings.heartbeat_dir.name)
    if settings.log_dir.parent == settings.run_dir:
        make_meeting(settings.run_dir, settings.log_dir.name)
    else:
        make_private(settings.log_dir)
    register = Register(settings.register_path)
    for pid in register.end_orphans():
        say(f"minder launch: ended process {pid}, left by an earlier launcher")
    with asyncio.Runner(loop_factory=PatientLoop) as runner:
        runner.run(_serve(settings, register, listener))


class _Server(uvicorn.Server):  # type: ignore[misc]
    """Leaves signals to us: uvicorn would raise them again when it is done, before the workers are ended."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self, number: int) -> None:
        event(_log, logging.INFO, "signal received", signal=signal.Signals(number).name)
        self.should_exit = True


async def _serve(settings: LaunchSettings, register: Register, listener: Doorway) -> None:
    supervisor = Supervisor(settings, register)
    supervisor.start()
    config = uvicorn.Config(
        build_endpoints(supervisor, settings.token, settings.metrics_token),
        lifespan="off",
        **serving_options(),
        **({} if settings.tls is None else settings.tls.options()),
    )
    host, port = listener.getsockname()[:2]
    print(f"minder launch: job {settings.job} on {settings.machine}, {settings.slots} slots, at {host}:{port}", flush=True)
    following = asyncio.create_task(supervisor.follow_logs())
    server = _Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, functools.partial(server.stop, number))
    try:
        await server.serve(sockets=[listener])
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await supervisor.end_all(settings.grace_s)


def _listen(host: str, port: int) -> Doorway:
    try:
        return Doorway(host, port)
    except OSError as error:
        raise BadInputError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --listen, or end what holds it") from error
