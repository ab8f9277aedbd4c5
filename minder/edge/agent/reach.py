"""Can this machine reach its job's peers over the job's own network? Asked for when connections alone cannot tell which end is dead.

A try is one TCP handshake from the address that the job uses to a port where nothing listens (RFC 1078's, given up long ago): a
refusal is an answer. No byte is sent, and no socket of the job is touched.

A machine also tries the addresses at which the job's own processes listen. Before the first step it may have no connection at all, and
its peers only know an address that does not answer: whose it is, the machine itself has to say. Ranks that meet one after the other all
wait for the same one: whether they reach one another shows only where the controller names the others' addresses (`peers`).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Sequence

from minder.edge.exporters.flows import FlowExporter
from minder.edge.exporters.jobs import JobProcess
from minder.model.telemetry import ConnectivityProbe
from minder.wire.addresses import host_of

__all__ = ["try_peers"]

_PORT = 1
_MOST = 64
_LIMIT_S = 1.5  # one lost SYN is sent again after a second
_NOT_OURS = {errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE, errno.EINVAL}  # nothing was tried


async def try_peers(
    machine: str, processes: Sequence[JobProcess], ends_s: float, peers: Sequence[str] = ()
) -> list[ConnectivityProbe]:  # fmt: skip
    """One try per peer address of the job's connections, open or opening, then per address of `peers`, at most 64; and per own address at
    which it listens and has no connection yet; all at once. ends_s: of time.monotonic()."""
    exporter, now_s = FlowExporter(machine), time.time()
    flows = await asyncio.to_thread(exporter.flows, processes, now_s)
    flows += await asyncio.to_thread(exporter.opening, processes, now_s)
    ends = sorted({(host_of(flow.local), host_of(flow.remote)) for flow in flows})
    ends = [(local, remote) for local, remote in ends if local != remote]
    seen = {host for end in ends for host in end}  # whose these are the connections say
    own = sorted({host_of(address) for address in await asyncio.to_thread(exporter.listening, processes, now_s)} - seen)
    ends += [(local, peer) for peer in peers if peer not in seen and (local := _source(peer)) not in (None, peer)] if processes else []
    limit_s = max(0.05, min(_LIMIT_S, ends_s - time.monotonic()))
    tries = [*ends[:_MOST], *((host, host) for host in own)]
    found = await asyncio.gather(*(_try(machine, local, remote, limit_s) for local, remote in tries))
    return [attempt for attempt in found if attempt is not None]


def _source(peer: str) -> str | None:
    """The address from which this machine would speak to a peer; None where it knows no way. Nothing is sent."""
    with socket.socket(socket.AF_INET6 if ":" in peer else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((peer, _PORT))
        except OSError:
            return None
        return str(probe.getsockname()[0])


async def _try(machine: str, local: str, remote: str, limit_s: float) -> ConnectivityProbe | None:
    """None: this machine could not even try."""
    began_s = time.time()
    reached = True
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(remote, _PORT, local_addr=(local, 0)), limit_s)
        writer.close()
    except (ConnectionRefusedError, ConnectionResetError):
        pass
    except TimeoutError:
        reached = False
    except OSError as error:
        if error.errno in _NOT_OURS:
            return None
        reached = False
    return ConnectivityProbe(machine, began_s, local, remote, reached, time.time() - began_s)
