"""Scripted incidents: a quiet synchronous job, and on its telemetry a few short written scripts in the manner of published postmortems.

A script is a timeline of statements, such as "0..60 err + 1..80 over 5..120; 20..120 xfer * 1.05..2.2 over 10": sizes, delays and the order
of symptoms are drawn, healthy things are scripts of the same language, and what a statement does to one machine reaches the others only
through the step that all of them share.
Legend: M machines, Q rows of a machine and scrape (one, or the host's and its GPUs'), R scrapes, T fine times, K metrics, L shares of time.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from minder.model.errors import ConfigError
from minder.model.metrics import find_metric
from minder.simulate.worlds.world import NO_FAULT, Truth, World

__all__ = ["CAUSES", "FAULTS", "NAME", "NUISANCES", "draw"]

NAME = "postmortems"
_TICK_S, _BEFORE_S, _GPUS, _MOST_ROWS = 0.5, 150.0, 8, 128_000  # _BEFORE_S: played before what is recorded


def _read(text: str) -> dict[str, dict[str, tuple[list[str], str, str]]]:
    """Of each section name to the words after it, a sentence, and the script."""
    sections: dict[str, dict[str, tuple[list[str], str, str]]] = {}
    for section in text.split("\n[")[1:]:
        title, _, rest = section.partition("]\n")
        entries = (entry.partition("\t") for entry in rest.strip().replace("\n    ", "\t").splitlines() if entry)
        cut = ((*head.partition(":"), script.replace("\t", " ")) for head, _, script in entries)
        sections[title] = {words.split()[0]: (words.split()[1:], sentence.strip(), script) for words, _, sentence, script in cut}
    return sections


_TEXT = _read((Path(__file__).parents[1] / "data" / "postmortems.txt").read_text(encoding="utf-8"))
_ONE, _PAIR, _GROUP, _JOB, _HEALTHY, _QUIET = (_TEXT[title] for title in ("one", "pair", "group", "job", "healthy", "quiet"))
_LATE, _PARTS = ("deadlock", "job_end"), ("work", "xfer", "feed")  # causes that nothing follows; parts of a step in their order
_SCRIPTS = {**_ONE, **_PAIR, **_GROUP}
FAULTS, CAUSES, NUISANCES = (MappingProxyType({name: entry[1] for name, entry in table.items()}) for table in (_SCRIPTS, _JOB, _HEALTHY))


class _Metric:
    """A row of the table of metrics, whose columns the file of scripts explains."""

    def __init__(self, name: str, *words: str) -> None:
        numbers, self.name, self.kind, self.exporter = [float(word) for word in words[:-2]], name, words[-2], words[-1]
        self.low, self.high = next((known.low, known.high) for known in [find_metric(name)] if known)
        self.level, self.made_of_L = (numbers[0], numbers[1]), np.array(numbers[2:10])
        self.spread, self.wander, self.noise, self.quantum = numbers[10:]


_METRICS = {code: _Metric(*entry[0]) for code, entry in _TEXT["metrics"].items()}
_ON_GPU = {code for code, metric in _METRICS.items() if metric.exporter in ("smi", "dcp", "rare")}


class _Scene(NamedTuple):
    """The quiet job on which scripts play. groups: rack, switch, stage and role of each machine."""

    machines: int
    codes: tuple[str, ...]
    groups: dict[str, np.ndarray]
    saves: tuple[float, ...]
    times_T: np.ndarray
    by_gpu: bool


class _Line(NamedTuple):
    """A statement with its numbers. amount_M: logarithms where it multiplies. gpu: which of eight, -1 for all. late_M: ticks."""

    track: str
    op: str
    amount_M: np.ndarray
    who_M: np.ndarray
    late_M: np.ndarray
    gpu: int
    envelope_T: np.ndarray

    def on(self, value_MQR: np.ndarray, tick_MR: np.ndarray, ticks: int) -> None:
        """Acts on a track, in place, as a mean of so many ticks. Where only machines have rows, one GPU is an eighth of each."""
        who = np.flatnonzero(self.who_M)
        old_MQR, amount_M = value_MQR[who], self.amount_M[who, None, None]
        slots = value_MQR.shape[1]
        one_Q = np.append(0.0, np.arange(_GPUS) == self.gpu) if slots > 1 else np.full(1, 1 / _GPUS)
        weight_Q = (one_Q if self.gpu >= 0 else np.ones(slots))[:, None]
        total_T, until = np.append(0.0, np.cumsum(self.envelope_T)), tick_MR[who] - self.late_M[who, None] + 1
        shape_MQR = (total_T[np.maximum(until, 0)] - total_T[np.maximum(until - ticks, 0)])[:, None, :] / ticks
        if self.op == "*":
            value_MQR[who] = old_MQR * (1 + np.expm1(amount_M * shape_MQR) * weight_Q)
        else:
            value_MQR[who] = old_MQR + (amount_M - old_MQR * (self.op == "=")) * shape_MQR * weight_Q


_Fault = tuple[str | None, np.ndarray, float | None, float | None, list[_Line]]  # name, machines, onset and end, script


class _Stage:
    """One script being played: its severity, its haste, and what it has drawn so far."""

    def __init__(self, scene: _Scene, rng: np.random.Generator, its: np.ndarray, span: tuple[float, float]) -> None:
        self.scene, self.rng, self.its, self.span = scene, rng, its, span
        self.severity, self.haste, self.gpu = rng.uniform(), float(np.exp(rng.uniform(-0.4, 0.4))), int(rng.integers(_GPUS))
        self.scale, self.drawn = rng.uniform(0.7, 1.3, (2, 1000)), dict[str, float]()
        self.some_M = rng.uniform(size=scene.machines) < rng.uniform(0.1, 0.35)

    def between(self, text: str) -> float:
        low, _, high = text.partition("..")
        return float(self.rng.uniform(float(low), float(high or low)))

    def once(self, text: str) -> float:
        """One number for each text and script, so that symptoms with the same words go together."""
        return self.drawn.setdefault(text, self.between(text))

    def amount(self, text: str) -> float:
        low, _, high = text.partition("..")
        one, other, at = float(low), float(high or low), float(np.clip(self.severity + self.rng.normal(0, 0.12), 0, 1))
        return float(one * (other / one) ** at) if one * other > 0 else one + (other - one) * at

    def bouts(self, at: str, words: dict[str, str]) -> list[tuple[float, float]]:
        """Start and length of each time that the statement holds."""
        begin, end = self.span
        length = self.once(words["for"]) if "for" in words else np.inf
        first = -_BEFORE_S if at == "start" else begin + (60.0 if at == "save" else self.haste * self.between(at))
        starts, lengths = [first], [length] * 2000
        if at == "save":
            starts = [save for save in self.scene.saves if begin <= save < end]
            starts = [first, *starts] if not starts or starts[0] > begin + 240 else starts
        elif "each" in words:
            starts = list(first + self.once(words["each"]) * np.append(0.0, np.cumsum(self.scale[0])))
            lengths = list(self.once(words["lit"]) * self.scale[1])
        return [(start, min(length, end - start)) for start, length in zip(starts, lengths, strict=False) if start < min(end, 4000.0)]

    def who(self, word: str) -> np.ndarray:
        every, rack_M, its_M = np.arange(self.scene.machines), self.scene.groups["rack"], np.isin(np.arange(self.scene.machines), self.its)
        masks = {"it": its_M, "gpu": its_M, "first": every == 0, "some": self.some_M, "all": every >= 0, "roll": every >= 0}
        return np.asarray(
            masks[word] if word in masks else (rack_M == rack_M[self.its[0]] if word == "rack" else self.scene.groups["role"] == word)
        )

    def line(self, at: str, track: str, op: str, amount: str, words: dict[str, str]) -> _Line:
        times_T, machines, who = self.scene.times_T, self.scene.machines, words.get("who", "it")
        if track in ("any", "bw"):
            part = {"any": "", "bw": "bytes_per_s"}[track]
            known = [code for code in self.scene.codes if _METRICS[code].kind in "grhb" and part in _METRICS[code].name]
            track = known[int(self.once("0..1") * len(known))] if known else "cpu"
        value, over_s, for_s = self.amount(amount), self.once(words.get("over", "0.1")), self.once(words.get("for", "0"))
        who_M, amount_M, envelope_T = self.who(who), np.full(machines, np.log(value) if op == "*" else value), 0.0 * times_T
        for start, length in self.bouts(at, words):
            since_T = times_T - start + _TICK_S / 2
            shape_T = np.clip(np.minimum(since_T / over_s, 1 + (length - since_T) / over_s), 0, 1)
            envelope_T = envelope_T + (since_T > 0) if op == "#" else np.maximum(envelope_T, shape_T)
        moves = track in _METRICS and (_METRICS[track].made_of_L[1:].any() or _METRICS[track].kind == "p")
        if moves and op in "*+":  # no symptom is steady, nor alike on two machines
            turns_T = times_T / self.rng.uniform(2, 30, (2, 1)) + self.rng.uniform(0, 6, (2, 1))
            envelope_T = envelope_T * (1 + self.rng.uniform(0, 0.15) * np.sin(turns_T).prod(axis=0))
            amount_M = amount_M * (self.rng.uniform(0.6, 1.3, machines) if who_M.sum() > 2 else 1.0)
        late_M = np.arange(machines) * 20 // machines * int(1.5 * for_s / _TICK_S) * (who == "roll")
        return _Line(track, op, amount_M, who_M, late_M, self.gpu if who == "gpu" else -1, envelope_T)

    def play(self, script: str) -> list[_Line]:
        variants = script.format_map({name: entry[2] for name, entry in _TEXT["words"].items()}).split("|")
        lines, common = list[_Line](), dict[str, str]()
        for text in variants[int(self.rng.integers(len(variants)))].split(";"):
            words = text.split()
            if words[:1] == ["with"]:
                common = dict(zip(words[1::2], words[2::2], strict=True))
            elif words:
                own = common | dict(zip(words[4::2], words[5::2], strict=True))
                if self.rng.uniform() < float(own.get("odds", 1)):
                    lines.append(self.line(words[0], words[1], words[2], words[3], own))
        return lines


def _rng(seed: int, *words: str) -> np.random.Generator:
    return np.random.default_rng([seed, *(zlib.crc32(word.encode()) for word in ("postmortems", *words))])


class _Job:
    """The quiet job's numbers, and how its steps went under all that the scripts say."""

    def __init__(self, scene: _Scene, lines: list[_Line], rng: np.random.Generator, step_s: float) -> None:
        self.scene, self.lines, times_T = scene, lines, scene.times_T
        parts_P = np.array([rng.uniform(0.5, 0.8), rng.uniform(0.08, 0.3), rng.uniform(0.01, 0.06)])
        self.parts_P, self.step_s = parts_P / parts_P.sum(), step_s
        self.longest_PT = self.parts_P[:, None] * np.array([self.slowest(track) for track in _PARTS])
        jitter = rng.normal(0, rng.uniform(0.005, 0.04), len(times_T))
        each = slice(None, None, max(1, round(step_s / _TICK_S)))
        jitter_T = np.exp(np.interp(times_T, times_T[each], jitter[each]))
        self.took_T = self.longest_PT.sum(axis=0)
        said_T = {code: [line.envelope_T > 0.5 for line in lines if line.track == code] or [times_T < -1e9] for code in ("halt", "still")}
        self.halted_T, still_T = (np.asarray(np.any(said, axis=0)) for said in said_T.values())
        pace_T = ~self.halted_T * _TICK_S / (step_s * self.took_T * jitter_T)
        first = rng.integers(50, 90_000) + rng.uniform()
        self.done_T, self.counted_T = first + np.cumsum(pace_T), first + np.cumsum(pace_T * ~still_T)

    def slowest(self, track: str) -> np.ndarray:
        """(T,): how many times as long a part takes on the machine on which it takes longest."""
        mine = [line for line in self.lines if line.track == track]
        if not mine:
            return np.ones(len(self.scene.times_T))
        kinds_SU = np.unique(np.array([line.who_M for line in mine]), axis=1).astype(float)
        logs_ST = np.array([line.amount_M[0] * line.envelope_T for line in mine])
        return np.asarray(np.exp((kinds_SU.T @ logs_ST).max(axis=0)))

    def effect(self, track: str, start_MQR: np.ndarray, tick_MR: np.ndarray, ticks: int = 1) -> np.ndarray:
        value_MQR = start_MQR.copy()
        for line in self.lines:
            if line.track == track and line.op != "hold":
                line.on(value_MQR, tick_MR, ticks)
        return value_MQR

    def shares(self, at_MR: np.ndarray, tick_MR: np.ndarray, window_s: float, own_MQR: np.ndarray) -> np.ndarray:
        """(L, M, Q, R): what the window before each scrape was made of, in the order of the table."""
        times_T, halted_T = self.scene.times_T, np.cumsum(self.halted_T) * _TICK_S
        now, past = (np.interp(at_MR - ago_s, times_T, self.done_T)[:, None, :] for ago_s in (0.0, window_s))
        stood_s = np.interp(at_MR, times_T, halted_T) - np.interp(at_MR - window_s, times_T, halted_T)
        ran_M1R = np.clip(1 - stood_s[:, None, :] / window_s, 0, 1) / np.maximum(now - past, 1e-9)

        def share(low: np.ndarray, high: np.ndarray) -> np.ndarray:
            """Of the window, what lay between two points of the step."""
            ends = [np.floor(done) * (high - low) + np.clip(done % 1 - low, 0, high - low) for done in (now, past)]
            return np.asarray((ends[0] - ends[1]) * ran_M1R)

        rest_MQR, spin_MQR = (
            np.clip(self.effect(track, 0 * own_MQR, tick_MR, max(1, int(window_s / _TICK_S))), 0, 1) for track in ("rest", "spin")
        )
        alive_MQR, took_M1R = (1 - rest_MQR) * (1 - spin_MQR), self.took_T[tick_MR][:, None, :]
        low, busy, paces = 0 * took_M1R, [], []
        for p, track in enumerate(_PARTS):
            high = low + self.longest_PT[p][tick_MR][:, None, :] / took_M1R
            own = self.effect(track, own_MQR if p == 0 else 0 * own_MQR + 1, tick_MR) * self.parts_P[p] / took_M1R
            busy.append(share(low, np.minimum(low + own, high)) * alive_MQR)
            paces.append(share(low, high) / (high - low) / took_M1R * alive_MQR)
            low = high
        waits_MQR = 1 - rest_MQR - busy[0] - busy[1] - busy[2]
        return np.array([0 * own_MQR + 1, busy[0], busy[1], waits_MQR, busy[2], rest_MQR, paces[1], paces[0]])


def _scene(rng: np.random.Generator, machines: int, duration_s: float) -> _Scene:
    has = {name: rng.uniform() < float(entry[0][0]) for name, entry in _TEXT["exporters"].items()}
    codes = tuple(code for code, metric in _METRICS.items() if has[metric.exporter] and (rng.uniform() < 0.92 or code in ("duty", "power")))
    every, in_rack = np.arange(machines), int(np.clip(rng.integers(3, 17), 2, max(2, machines // 3)))
    stages, below = int(rng.choice([1, 1, 1, 2, 4, 8])) if machines >= 16 else 1, in_rack * int(rng.integers(1, 3))
    rollouts = rng.uniform(0.3, 0.6) * (rng.uniform() < 0.1) if machines >= 8 else 0.0
    role_M = np.where(every < machines * (1 - rollouts), "trainer", "rollout")
    groups = {"rack": every // in_rack, "switch": every // below, "stage": every * stages // machines, "role": role_M}
    period_s, by_gpu = float(np.exp(rng.uniform(np.log(120), np.log(900)))), bool(rng.uniform() < 0.3) and machines <= 24
    saves = tuple(np.arange(rng.uniform(0.1, 1) * period_s, duration_s, period_s))
    return _Scene(machines, codes, groups, saves, np.arange(-_BEFORE_S, duration_s + 60, _TICK_S), by_gpu)


def _around(scene: _Scene, seed: int, lasts_s: float, spare: int) -> tuple[list[_Line], str | None, tuple[str, ...], tuple[int, ...]]:
    """What is no fault: the job's saves, a cause in some, one or two nuisances. And the machines that an exchange takes and brings."""
    rng, every = _rng(seed, "around"), np.arange(scene.machines)

    def play(name: str, script: str, its: np.ndarray, begin_s: float, end_s: float = np.inf) -> list[_Line]:
        return _Stage(scene, _rng(seed, "play", name), its, (begin_s, end_s)).play(script)

    lines = play("saves", _QUIET["saves"][2], every, 0.0)
    if "rollout" in scene.groups["role"]:
        lines += play("roles", _QUIET["roles"][2], every, 0.0)
    cause, swapped = str(rng.choice(list(_JOB))) if rng.uniform() < 0.45 else None, int(rng.integers(1, spare))
    begin_s = lasts_s * rng.uniform(0.12, 0.8) if cause not in _LATE else lasts_s - rng.uniform(0.1, 0.35) * min(lasts_s, 900.0)
    lines += play(cause, _JOB[cause][2], every, begin_s) if cause else []
    lines += play("leaves", "0 mute + 1", np.array([swapped]), begin_s) if cause == "exchange" else []
    lines += play("comes", "start mute + 1", np.array([spare]), 0.0, begin_s + 60 if cause == "exchange" else np.inf)
    nuisances = tuple(str(name) for name in rng.choice(list(_HEALTHY), 1 + int(rng.uniform() < 0.45), replace=False))
    for name in nuisances:
        lines += play(name, _HEALTHY[name][2], rng.integers(0, spare, 1 + 2 * (name == "second_tenant")), rng.uniform(0.05, 0.85) * lasts_s)
    return lines, cause, nuisances, ((swapped, spare) if cause == "exchange" else (spare,))


def _fault(scene: _Scene, rng: np.random.Generator, asked: str | None, lasts_s: float, away: tuple[int, ...]) -> _Fault:
    """The script of a fault. What the site's metrics cannot show at all is seldom drawn."""
    fault: _Fault = (None, np.zeros(0, int), None, None, [])
    if asked == NO_FAULT or (rng.uniform() > 0.63 and asked is None):
        return fault
    kinds = (_ONE, _PAIR, _GROUP)[int(rng.choice(3, p=[0.75, 0.125, 0.125]))]
    onset_s = float(rng.uniform(300, max(330, lasts_s - 500)) if lasts_s >= 840 else rng.uniform(0.35, 0.5) * lasts_s)
    onset_s = float(rng.uniform(20, 200)) if rng.uniform() < 0.06 else onset_s
    weights = np.array([float(entry[0][0]) for entry in kinds.values()])
    for _ in range(12):
        name = asked or str(rng.choice(list(kinds), p=weights / weights.sum()))
        its, early = _whom(scene, rng, name, away), name == "slow_from_start"
        end_s = onset_s + rng.uniform(360, 1500) if rng.uniform() < 0.25 and "grey" in _SCRIPTS[name][0] and not early else np.inf
        lines = _Stage(scene, rng, its, (-_BEFORE_S if early else onset_s, end_s)).play(_SCRIPTS[name][2])
        fault = (name, its, 0.0 if early else onset_s, end_s if end_s < lasts_s else None, lines)
        heard = {line.track for line in lines if line.who_M.sum() == len(its) and line.envelope_T[scene.times_T > 0].max() > 0.2}
        if heard & {"mute", "rest", *scene.codes}:
            break
    return fault


def _whom(scene: _Scene, rng: np.random.Generator, name: str, away: tuple[int, ...]) -> np.ndarray:
    able = np.setdiff1d(np.arange(scene.machines), away)
    chosen = np.sort(rng.choice(able, 2 if name in _PAIR else 1, replace=False))
    if name not in _GROUP:
        return chosen
    for kind in (name.partition("_")[0], "rack"):
        group = np.setdiff1d(np.flatnonzero(scene.groups[kind] == scene.groups[kind][chosen[0]]), away)
        if 2 <= len(group) <= 0.4 * len(able):
            return group
    return able[:2]


class _Exporters:
    """Reads a job's metrics as its exporters do: spread and wander of machines, noise, whole numbers, and what scripts say of a metric."""

    def __init__(self, job: _Job, seed: int, at_MR: np.ndarray, interval_s: float) -> None:
        self.job, self.scene, self.interval_s, self.at_MR = job, job.scene, interval_s, at_MR
        self.rng = _rng(seed, "exporters")
        self.tick_MR = np.clip(((at_MR + _BEFORE_S) / _TICK_S).astype(int), 0, len(job.scene.times_T) - 1)
        windows = {"g": min(interval_s, float(self.rng.choice([1.0, 30.0]))), "r": interval_s, "h": 90.0}
        own_MQ1 = 1 - np.minimum(np.abs(self.rng.normal(0, 0.012, (len(at_MR), 1 + _GPUS * job.scene.by_gpu, 1))), 0.05)
        own_MQR = np.repeat(own_MQ1, at_MR.shape[1], axis=2)
        self.of_kind = {kind: job.shares(at_MR, self.tick_MR, window_s, own_MQR) for kind, window_s in windows.items()}
        self.waiting, self.loud = self.rng.uniform(0.6, 1.4), float(np.exp(self.rng.uniform(-0.5, 0.5)))

    def steps(self, code: str) -> np.ndarray:
        """Of the step that ended last: how long it took, or its number."""
        job, times_T = self.job, self.scene.times_T
        ended = np.floor(np.interp(self.at_MR, times_T, job.counted_T if code == "steps" else job.done_T))
        took = np.interp(ended, job.done_T, times_T) - np.interp(ended - 1, job.done_T, times_T)
        return np.asarray(ended if code == "steps" else np.where(ended - 1 < job.done_T[0], job.step_s, took))[:, None, :]

    def read(self, code: str) -> np.ndarray:
        """(M, Q, R)"""
        metric, rng, machines = _METRICS[code], self.rng, len(self.at_MR)
        made_of_L = metric.made_of_L * np.where((np.arange(8) == 3) & (code not in ("duty", "gr", "jbusy", "cpu")), self.waiting, 1.0)
        level = float(np.exp(rng.uniform(*np.log(np.maximum(metric.level, 1e-12))))) * (metric.level[1] > 0)
        value = level * np.tensordot(made_of_L, self.of_kind[metric.kind if metric.kind in "gh" else "r"], 1)
        uniform, normal, shape = rng.uniform(size=value.shape), rng.standard_normal(value.shape), value.shape
        by_stage = rng.normal(0, 0.03, (8, 1, 1)) * (metric.exporter in ("smi", "dcp") and code not in ("duty", "gr", "clock"))
        spread = metric.spread * rng.standard_normal((machines, shape[1], 1)) + by_stage[self.scene.groups["stage"]]
        walk = rng.standard_normal((machines + 1, int(self.at_MR.max() / 25) + 12)).cumsum(axis=1)
        walk = (walk[:, 6:] - walk[:, :-6]) / 2.45  # of the machine's own and of all, each a few minutes long
        place_R = np.median(self.at_MR, axis=0) / 25
        low_R, part_R = place_R.astype(int), place_R % 1
        wander = metric.wander * ((0.8 * walk[1:] + 0.6 * walk[:1])[:, [low_R, low_R + 1]] * [1 - part_R, part_R]).sum(axis=1)[:, None, :]
        start = rng.poisson(min(level, 1e3), (machines, shape[1], 1))
        if metric.kind in "nj":
            value = np.broadcast_to(start if metric.kind == "n" else self.steps(code), shape).astype(float)
        ticks = int(self.interval_s / _TICK_S) if metric.kind in "rbp" else 1
        value = self.job.effect(code, value * np.exp(np.clip(spread, -2.5, 2.5) + wander), self.tick_MR, ticks)
        noise = metric.noise * (self.loud if metric.kind in "grh" else 1.0)
        if metric.kind == "b":
            value = value * np.exp(noise * normal - noise**2 / 2) * np.where(uniform < 0.01, 4.0, 1.0)
        elif metric.kind == "p":
            value = _counts(np.maximum(value, 0) * self.interval_s, uniform, normal) / self.interval_s
        else:
            value = value * (1 + noise * normal)
        if metric.quantum and metric.kind not in "p":
            value = np.round(value / metric.quantum) * metric.quantum
        return np.asarray(np.clip(value, metric.low, metric.high))

    def held(self, value_MQR: np.ndarray, code: str) -> np.ndarray:
        """Where a metric's exporter stands, it says what it said last."""
        for line in self.job.lines:
            if line.track == "hold" or (line.track == "holdgpu" and code in _ON_GPU) or (line.op == "hold" and line.track == code):
                for m in np.flatnonzero(line.who_M):
                    stands_R = line.envelope_T[self.tick_MR[m]] > 0.5
                    value_MQR[m] = value_MQR[m][:, np.maximum.accumulate(np.where(stands_R, 0, np.arange(len(stands_R))))]
        return value_MQR


def _counts(mean: np.ndarray, uniform: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Poisson counts that use as many random numbers whatever the mean."""
    few = np.minimum(mean, 9.0)
    odds = np.cumprod([np.exp(-few), *(few / n for n in range(1, 25))], axis=0).cumsum(axis=0)
    return np.asarray(np.where(mean > 9, np.maximum(np.round(mean + np.sqrt(mean) * normal), 0), (uniform > odds).sum(axis=0)))


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world (minder.simulate.worlds.world.Family)."""
    if fault not in (None, NO_FAULT, *FAULTS):
        raise ConfigError(f'family {NAME} has no fault "{fault}": use {NO_FAULT}, {", ".join(FAULTS)}')
    rng = _rng(seed, "world")
    own_count, own_s = int(np.clip(np.exp(rng.normal(np.log(46), 1.85)), 4 + rng.integers(4), 3999)), float(rng.uniform(900, 3600))
    step_s = float(np.exp(rng.uniform(np.log(0.3), np.log(60)) * 0.85 + 0.15 * np.log(5)))
    count, asked_s = machines or own_count, duration_s or own_s
    interval_s = float(rng.choice([1, 2, 5, 10, 15, 30], p=[0.1, 0.1, 0.25, 0.25, 0.2, 0.1]))
    scene = _scene(rng, count + 1, asked_s)
    slots = 1 + _GPUS * scene.by_gpu
    interval_s = max(interval_s, min(30.0, float(np.ceil((count + 1) * slots * asked_s / _MOST_ROWS))))
    lasts_s = min(asked_s, _MOST_ROWS * interval_s / (count + 1) / slots)
    lines, cause, nuisances, away = _around(scene, seed, lasts_s, count)
    name, its, onset_s, end_s, own_lines = _fault(scene, _rng(seed, "fault"), fault, lasts_s, away)
    job = _Job(scene, lines + own_lines, _rng(seed, "job"), step_s)
    at_MR = rng.uniform(0, interval_s, (count + 1, 1)) + np.arange(0, lasts_s - interval_s, interval_s)
    at_MR = at_MR + np.abs(rng.normal(0, 0.02 * interval_s, at_MR.shape))
    read = _Exporters(job, seed, at_MR, interval_s)
    values = np.array([read.held(read.read(code), code) for code in scene.codes])
    for k, code in enumerate(scene.codes if scene.by_gpu else ()):
        values[k, :, slice(0, 1) if code in _ON_GPU else slice(1, None)] = np.nan
    heard = rng.uniform(size=values.shape[1:]) > rng.uniform(0, 0.015)
    m_N, q_N, r_N = np.nonzero(heard & (job.effect("mute", np.zeros(heard.shape), read.tick_MR) < 0.5))
    wrong_M = (rng.uniform(size=count + 1) < 0.12) | (np.arange(count + 1) == rng.integers(count))
    off_M = np.where(wrong_M, np.round(rng.uniform(-120, 120, count + 1), 1), 0.0) * ("clock_off" in nuisances)

    prefix, began_s = (
        f"{rng.choice(['node', 'gpu', 'worker', 'h', 'cn', 'trn'])}{rng.integers(1, 90)}",
        1.75e9 + float(rng.integers(30_000_000)),
    )
    names = tuple(f"{prefix}-{m:04d}" for m in range(count + (cause == "exchange")))
    named, as_group = tuple(names[m] for m in its), name in _GROUP
    shown = [kind for kind, odds in (("rack", 0.45), ("switch", 0.3)) if rng.uniform() < odds]
    shown += ["stage"] * bool(scene.groups["stage"].any()) + ["role"] * ("rollout" in scene.groups["role"])
    of = {kind: dict(zip(names, scene.groups[kind].tolist(), strict=False)) if kind in shown else {} for kind in scene.groups}
    return World(
        NAME, seed, names, tuple(_METRICS[code].name for code in scene.codes), interval_s, step_s, began_s + at_MR[m_N, r_N] + off_M[m_N],
        m_N, q_N - 1, np.ascontiguousarray(values[:, m_N, q_N, r_N].T),
        Truth(() if as_group else named, named if as_group else (), name, None if onset_s is None else began_s + onset_s,
              end_s and began_s + end_s, name is not None and "grey" in _SCRIPTS[name][0], cause, nuisances),
        tuple(str(gpu) for gpu in range(_GPUS * scene.by_gpu)),
        MappingProxyType(of["stage"]), MappingProxyType(of["role"]), MappingProxyType({name: f"r{at}" for name, at in of["rack"].items()}),
        MappingProxyType({name: f"leaf{at}" for name, at in of["switch"].items()}),
        MappingProxyType({names[m]: float(off_M[m]) for m in np.flatnonzero(off_M[: len(names)])}))  # fmt: skip
