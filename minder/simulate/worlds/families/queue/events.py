"""The steps of a job as a chain of events: load, compute, wait for the slowest, exchange, write; collectives are barriers.

Every step begins for all servers at once, so that the job's time is a max-plus sum over steps: a server's interval of each state
follows from its own rate and from the slowest of its replica, its ring and the job. Legend: K steps, S states, R servers, M machines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.queue.layout import Layout, stream
from minder.simulate.worlds.families.queue.story import Service, Story

__all__ = ["COMPUTE", "EXCHANGE", "HELD", "LOAD", "OFF", "REST", "STATES", "TAIL", "WAIT", "WRITE", "Timeline", "run"]

# In this order within a step. REST is the compute after a hold; TAIL the wait for those that still exchange or write.
LOAD, COMPUTE, HELD, REST, WAIT, EXCHANGE, WRITE, TAIL, OFF = range(9)
STATES = 9
_CHUNK = 32  # rows of random numbers drawn at a time


@dataclass(frozen=True, slots=True)
class Timeline:
    """What each did when. begin_K: of each step, length_KSR: seconds of each state. amount_KAR: what the step computes, exchanges
    and writes, in seconds at the healthy rate: a slow server takes longer for the same amount.

    steps_K: steps done before. train_K: whether it is a step of training. hung_s: when the write that never ends began, or None.
    """

    begin_K: np.ndarray
    length_KSR: np.ndarray
    amount_KAR: np.ndarray
    steps_K: np.ndarray
    hung_s: float | None


@dataclass(slots=True)
class _Rates:
    compute_R: np.ndarray
    network_R: np.ndarray
    load_R: np.ndarray
    write_R: np.ndarray
    evaluation: bool = False


def _begins(layout: Layout) -> tuple[float, int]:
    """When the job's first simulated step begins, in seconds of the world, and how many it had done."""
    started, done = stream(layout.seed, "begin").random(2)
    before_s = 2.0 if started < 0.15 else 2 * max(layout.windows_s) + 2 * layout.step_s
    return -before_s, 0 if started < 0.15 else int(done * 50_000)


class _Job:
    """The closed network: the same servers go round step after step; a loader each fills a buffer of `prefetch` batches."""

    def __init__(self, layout: Layout, story: Story) -> None:
        servers = layout.servers
        self.layout, self.story = layout, story
        # Most worlds begin in the middle of a job, some with its start.
        self.now, self.steps = _begins(layout)
        self.last_checkpoint_s = self.now
        self.hung_s: float | None = None
        self.pending = sorted(story.holds, key=lambda hold: hold.at)
        self.gaps = sorted(story.gaps, key=lambda gap: gap.at)
        rng = stream(layout.seed, "servers")
        pipeline, batches = layout.pipeline, layout.microbatches
        compute_s = layout.step_s * (1.0 - layout.exchange_share) * batches / (batches + pipeline - 1)
        stage_P = rng.uniform(0.85, 1.0, pipeline)
        self.stage_R = np.repeat(layout.stage_M, layout.gpus)
        self.compute_R = compute_s * stage_P[self.stage_R] * rng.normal(1.0, layout.jitter / 3, servers)
        self.compute_R[np.repeat(layout.rollout_M, layout.gpus)] *= rng.uniform(0.6, 1.15)
        self.exchange_R = np.full(servers, layout.step_s * layout.exchange_share)
        self.load_R = np.full(servers, layout.step_s * layout.load_share)
        self.patience_s = rng.uniform(420.0, 1500.0)
        self.noise = stream(layout.seed, "steps")
        self.rows, self.next_row = np.empty((0, servers)), 0
        self.zeros_R, self.forever_R = np.zeros(servers), np.full(servers, np.inf)
        self.rates, self.served = _Rates(np.ones(servers), np.ones(servers), np.ones(servers), np.ones(servers)), ""
        self.fetched_R = np.full(servers, self.now)
        self.stop_s = np.inf
        self.begins: list[float] = []
        self.parts: list[np.ndarray] = []
        self.amounts: list[np.ndarray] = []
        self.counts: list[int] = []
        self.replica = self._replicas()

    def _replicas(self) -> np.ndarray:
        """(stages, replicas): machines; where stages are of unlike size the last machine of the smaller one stands twice."""
        members = [np.flatnonzero(self.layout.stage_M == stage) for stage in range(self.layout.pipeline)]
        width = max(map(len, members))
        return np.stack([np.pad(found, (0, width - len(found)), mode="edge") for found in members])

    def _noise(self) -> np.ndarray:
        """One row of factors near 1, one a server, and rarely a long one."""
        if self.next_row == len(self.rows):
            drawn = self.noise.standard_normal((_CHUNK, self.layout.servers + 1))
            factors = np.clip(1.0 + self.layout.jitter * drawn[:, 1:] + 0.01 * drawn[:, :1], 0.7, 1.6)
            factors[drawn[:, 1:] > 3.6] = 1.5
            self.rows, self.next_row = factors, 0
        self.next_row += 1
        return np.asarray(self.rows[self.next_row - 1])

    def _rates(self) -> _Rates:
        """The rates of now; computed again when a service begins or ends."""
        every, length = self.layout.evaluation_every_s, self.layout.evaluation_s
        regular = self.now > every and self.now % every < length
        on = [service.is_on(self.now) for service in self.story.services]
        served = f"{on}{regular}"
        if served != self.served:
            ones = np.ones(self.layout.servers)
            self.rates, self.served = _Rates(ones, ones.copy(), ones.copy(), ones.copy(), bool(regular)), served
            for service in (service for service, is_on in zip(self.story.services, on, strict=True) if is_on):
                self._slow_down(self.rates, service)
        return self.rates

    @staticmethod
    def _slow_down(rates: _Rates, service: Service) -> None:
        rates.evaluation |= service.evaluation
        rates.compute_R[service.who_R] *= service.compute
        rates.network_R[service.who_R] *= service.network
        rates.load_R[service.who_R] *= service.load
        rates.write_R[service.who_R] *= service.write

    def _held(self, place: str, begin_R: np.ndarray, end_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Seconds for which each server is held, and how much of its work it had done by then; what is due later stays pending."""
        if not self.pending or self.pending[0].at > self.now + float(end_R.max()):
            return self.zeros_R, self.forever_R
        held_R, done_R = np.zeros_like(begin_R), np.full_like(begin_R, np.inf)
        left = []
        for hold in self.pending:
            due = hold.place == place and np.any(hold.at <= self.now + end_R[hold.who_R])
            if not due or np.any(hold.at > self.now + end_R[hold.who_R]):
                left.append(hold)
                continue
            length = min(hold.length, self.patience_s)
            if place == "exchange":  # what is over before the exchange begins holds nothing
                length = max(0.0, hold.at + length - self.now - float(end_R[hold.who_R].min()))
            held_R[hold.who_R] += length
            done_R[hold.who_R] = np.maximum(0.0, hold.at - self.now - begin_R[hold.who_R])
            if np.isinf(hold.length):
                self._end_after(self.now + self.patience_s)
        self.pending = left
        return held_R, done_R

    def _end_after(self, when: float) -> None:
        """The collective's own time limit ends the job: the next step is not begun."""
        self.gaps = [gap for gap in self.gaps if gap.at < when]
        self.stop_s = min(self.stop_s, when)

    def _ready(self, busy_R: np.ndarray) -> np.ndarray:
        """When each server's replica has flushed its pipeline; the GPUs of a machine compute together (tensor parallel)."""
        if self.layout.pipeline == 1:
            return busy_R
        busy_M = busy_R.reshape(-1, self.layout.gpus).max(axis=1)
        batch = busy_M[self.replica] / self.layout.microbatches
        flushed_D = batch.sum(axis=0) + (self.layout.microbatches - 1) * batch.max(axis=0)
        ready_M = np.empty_like(busy_M)
        ready_M[self.replica] = flushed_D
        return np.repeat(ready_M, self.layout.gpus)

    def _exchange(self, rates: _Rates, noise_R: np.ndarray) -> np.ndarray:
        network_R = rates.network_R
        if self.layout.ring:  # a ring is as fast as its slowest port
            slowest_P = np.full(self.layout.pipeline, np.inf)
            np.minimum.at(slowest_P, self.stage_R, network_R)
            network_R = slowest_P[self.stage_R]
        exchange_R = self.exchange_R * noise_R / network_R
        return np.asarray(exchange_R * 0.03 if rates.evaluation else exchange_R)

    def _write(self, rates: _Rates, noise_R: np.ndarray, before_s: float) -> np.ndarray:
        if self.now - self.last_checkpoint_s < self.layout.checkpoint_every_s or rates.evaluation:
            return self.zeros_R
        self.last_checkpoint_s = self.now
        write_R = self.layout.checkpoint_s * noise_R / rates.write_R
        held_R, _ = self._held("write", write_R, np.full_like(write_R, before_s))
        if held_R.any():
            self.hung_s = self.now + before_s
        return np.asarray(write_R + held_R)

    def _fetch(self, rates: _Rates, noise_R: np.ndarray) -> np.ndarray:
        """Seconds until the batch of this step is there: the loader may be `prefetch` batches ahead, not more."""
        behind = max(0, len(self.begins) - self.layout.prefetch)
        room = self.begins[behind] if self.begins else self.now
        self.fetched_R = np.maximum(self.fetched_R, room) + self.load_R * noise_R / rates.load_R
        return np.maximum(0.0, self.fetched_R - self.now)

    def _keep(self, parts: dict[int, np.ndarray], amount_AR: np.ndarray, length: float) -> None:
        part_SR = np.zeros((STATES, self.layout.servers))
        for state, seconds in parts.items():
            part_SR[state] = seconds
        self.begins.append(self.now)
        self.parts.append(part_SR)
        self.amounts.append(amount_AR)
        self.counts.append(self.steps)
        self.now += length

    def _stand(self, length: float) -> None:
        """Nothing of the job runs."""
        self._keep({OFF: np.full(self.layout.servers, length)}, np.zeros((3, self.layout.servers)), length)
        self.fetched_R = np.full(self.layout.servers, self.now)
        self.last_checkpoint_s = self.now

    def _step(self) -> None:
        rates, noise_R = self._rates(), self._noise()
        load_R = self._fetch(rates, noise_R) if not rates.evaluation else self.zeros_R
        work_R = self.compute_R * noise_R * (0.4 if rates.evaluation else 1.0)
        compute_R = work_R / rates.compute_R
        held_R, done_R = self._held("compute", load_R, load_R + compute_R)
        first_R = np.minimum(done_R, compute_R)
        busy_R = load_R + compute_R + held_R
        ready = float(self._ready(busy_R).max())
        waits_R, _ = self._held("wait", busy_R, np.broadcast_to(ready, busy_R.shape))
        ready += float(waits_R.max()) if waits_R is not self.zeros_R else 0.0
        exchange_R = self._exchange(rates, noise_R)
        late_R, _ = self._held("exchange", exchange_R, np.broadcast_to(ready, busy_R.shape))
        if late_R is not self.zeros_R:
            exchange_R = exchange_R + (late_R.max() if self.layout.ring else late_R)
        write_R = self._write(rates, noise_R, ready + float(exchange_R.max()))
        length = ready + float((exchange_R + write_R).max())
        parts = {LOAD: load_R, COMPUTE: first_R, HELD: held_R, REST: compute_R - first_R, WAIT: ready - busy_R, EXCHANGE: exchange_R}
        moved_R = self.exchange_R * noise_R * (0.03 if rates.evaluation else 1.0)
        amount_AR = np.stack([work_R, moved_R, np.where(write_R > 0, self.layout.checkpoint_s, 0.0)])
        self._keep(parts | {WRITE: write_R, TAIL: length - ready - exchange_R - write_R}, amount_AR, length)
        self.steps += not rates.evaluation

    def run(self) -> Timeline:
        """Steps and gaps until the world's end."""
        end = self.layout.duration_s + self.layout.interval_s
        while self.now < end:
            if self.now >= self.stop_s:
                self._stand(end - self.now)
            elif self.gaps and self.gaps[0].at <= self.now:
                gap = self.gaps.pop(0)
                self._stand(max(1.0, min(gap.at + gap.length, end) - self.now))
            else:
                self._step()
        return Timeline(np.array(self.begins), np.stack(self.parts), np.stack(self.amounts), np.array(self.counts), self.hung_s)


def run(layout: Layout, story: Story) -> Timeline:
    """The job of this layout, through what the story brings."""
    return _Job(layout, story).run()
