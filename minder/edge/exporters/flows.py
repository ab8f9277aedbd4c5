"""The job's TCP connections: which process holds which socket, and the machine's sums over them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from minder.edge.exporters.growth import Growth
from minder.edge.exporters.inet_diag import LISTENING, OPENING, Connection, dump_connections
from minder.edge.exporters.jobs import JobProcess
from minder.edge.exporters.procfs import socket_inodes
from minder.edge.exporters.reading import Reading
from minder.model.telemetry import Flow

__all__ = ["FlowExporter"]

_NO_ADDRESS = ("0.0.0.0:", "[::]:", "127.0.0.1:", "[::1]:")  # any of the machine's, or one that every machine has
_ACTIVE_S = 5.0  # a connection that carried data this recently has a round trip worth reporting
_MAP_SHARE = 0.002  # of one core, spent on finding out which process holds which socket
_MAP_AT_LEAST_EVERY_S = 15.0
_READ_SHARE = 0.005  # of one core, spent on dumps: with thousands of foreign connections they are not taken every second
_READ_AT_LEAST_EVERY_S = 5.0


class FlowExporter:
    """Sums over the job's connections; `flows` gives them one by one.

    The map from sockets to processes is read again when an unknown socket shows up, but never so often that it costs
    more than 0.2 % of a core (a process with NCCL holds hundreds of files), and at least every 15 s.
    """

    def __init__(self, machine: str) -> None:
        self._machine = machine
        self._owners: dict[int, int] = {}  # socket inode to pid
        self._foreign: set[int] = set()
        self._mapped_s = float("-inf")
        self._map_cost_s = 0.0
        self._mapped_pids: frozenset[int] = frozenset()
        self._read_s = float("-inf")
        self._read_cost_s = 0.0
        self._last = Reading()
        self._retransmits = 0
        self._per_socket: dict[int, int] = {}
        self._bytes = Growth()

    def read(self, processes: Sequence[JobProcess], now_s: float) -> Reading:
        if now_s - self._read_s < min(_READ_AT_LEAST_EVERY_S, self._read_cost_s / _READ_SHARE - 0.5) and processes:
            return self._last
        started_s = time.thread_time()
        self._last = self._read(processes, now_s)
        self._read_cost_s, self._read_s = time.thread_time() - started_s, now_s
        return self._last

    def _read(self, processes: Sequence[JobProcess], now_s: float) -> Reading:
        reading = Reading()
        connections = self._connections(processes, now_s, fresh=False)
        if not connections and not self._per_socket:
            return reading
        reading.gauge("tcp_receive_queue_bytes", sum(item.receive_queue_bytes for item in connections))
        reading.gauge("tcp_send_queue_bytes", sum(item.send_queue_bytes for item in connections))
        self._count_retransmits(connections)
        reading.counter("tcp_retransmits", self._retransmits)
        reading.counter("job_tcp_bytes", self._bytes.add({str(item.inode): item.bytes_acked + item.bytes_received for item in connections}))
        trips = [item.round_trip_s for item in connections if min(item.last_send_age_s, item.last_receive_age_s) < _ACTIVE_S]
        if trips:
            reading.gauge("tcp_round_trip_seconds", sum(trips) / len(trips))
        return reading

    def flows(self, processes: Sequence[JobProcess], now_s: float, fresh: bool = True) -> list[Flow]:
        """The job's connections now. fresh: with a new map of their owners; without it, sockets that are not known yet may be missing."""
        return [self._flow(item, now_s) for item in self._connections(processes, now_s, fresh)]

    def opening(self, processes: Sequence[JobProcess], now_s: float) -> list[Flow]:
        """Connections that the job's processes are opening, and that nothing has answered yet."""
        self._map(frozenset(process.pid for process in processes), now_s)
        return [self._flow(item, now_s) for item in dump_connections(self._owners, OPENING)[0]]

    def listening(self, processes: Sequence[JobProcess], now_s: float) -> list[str]:
        """Addresses at which the job's processes wait for peers, "ip:port"; not those that name no machine."""
        self._map(frozenset(process.pid for process in processes), now_s)
        found = {item.local for item in dump_connections(self._owners, LISTENING)[0]}
        return sorted(address for address in found if not address.startswith(_NO_ADDRESS))

    def _connections(self, processes: Sequence[JobProcess], now_s: float, fresh: bool) -> list[Connection]:
        pids = frozenset(process.pid for process in processes)
        if not pids:
            return []
        age_s = now_s - self._mapped_s
        if fresh or pids != self._mapped_pids or age_s >= _MAP_AT_LEAST_EVERY_S:
            self._map(pids, now_s)
            age_s = 0.0
        connections, seen = dump_connections(self._owners)
        unknown = seen - self._owners.keys() - self._foreign
        if unknown and age_s > self._map_cost_s / _MAP_SHARE:
            self._map(pids, now_s)
            connections, seen = dump_connections(self._owners)
        if unknown:
            self._foreign = seen - self._owners.keys()
        return connections

    def _map(self, pids: frozenset[int], now_s: float) -> None:
        started_s = time.thread_time()
        self._owners = {inode: pid for pid in sorted(pids, reverse=True) for inode in socket_inodes(pid)}
        self._map_cost_s = time.thread_time() - started_s
        self._mapped_s, self._mapped_pids = now_s, pids

    def _count_retransmits(self, connections: list[Connection]) -> None:
        """A counter that does not fall when a connection closes."""
        totals = {item.inode: item.total_retransmits for item in connections}
        self._retransmits += sum(max(0, total - self._per_socket.get(inode, 0)) for inode, total in totals.items())
        self._per_socket = totals

    def _flow(self, item: Connection, now_s: float) -> Flow:
        return Flow(
            machine=self._machine,
            time_s=now_s,
            pid=self._owners[item.inode],
            local=item.local,
            remote=item.remote,
            receive_queue_bytes=item.receive_queue_bytes,
            send_queue_bytes=item.send_queue_bytes,
            unacked_segments=item.unacked_segments,
            retransmits=item.retransmits,
            backoff=item.backoff,
            round_trip_s=item.round_trip_s,
            bytes_acked=item.bytes_acked,
            bytes_received=item.bytes_received,
            last_send_age_s=item.last_send_age_s,
            last_receive_age_s=item.last_receive_age_s,
            unanswered_probes=item.unanswered_probes,
            unsent_bytes=item.unsent_bytes,
        )
