"""What must hold whatever the verdicts, the settings and the past."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from minder.act.policy import Policy, PolicyConfig, PolicyContext
from minder.act.policy.case import machine_limit
from minder.act.policy.ladder import ACTION_OF, TROUBLES
from minder.model.decision import Decision
from minder.model.evidence import Failure, Verdict
from minder.model.history import History, PastEviction, Pause, RuleRecord
from minder.model.observation import JobView

NOW_S = 10_000.0
MACHINES = tuple(f"m{n}" for n in range(8))
STANDBYS = tuple(f"s{n}" for n in range(4))
DOMAINS = {name: {"rack": f"r{n // 4}", "switch": f"leaf-{n % 3}"} for n, name in enumerate(MACHINES + STANDBYS)}

machine_sets = st.lists(st.sampled_from(MACHINES + STANDBYS), max_size=3, unique=True).map(tuple)
failures = st.lists(
    st.builds(
        Failure,
        time_s=st.sampled_from([NOW_S - 200.0, NOW_S - 1.0]),
        machine=st.sampled_from(MACHINES),
        ranks=st.sampled_from([(0,), (1,), ()]),
        sort=st.sampled_from(["crash", "hang", "nonfinite", "slow"]),
        kind=st.sampled_from(["unknown", "unknown", "program", "machine"]),
        fingerprint=st.sampled_from(["", "", "RuntimeError|x|train:main"]),
        generation=st.sampled_from([1, 2]),
    ),
    max_size=3,
).map(tuple)
verdicts_ = st.builds(
    Verdict,
    time_s=st.just(NOW_S),
    kind=st.sampled_from(["machine", "group", "job", "recovered"]),
    tier=st.sampled_from(["watch", "page", "evict", "evict"]),
    machines=machine_sets,
    cause=st.sampled_from(["stall", "slowdown", "absence", "explicit", "numeric", "unknown"]),
    confidence=st.floats(0.0, 1.0),
    since_s=st.floats(NOW_S - 100, NOW_S),
    sources=st.sampled_from([(), ("slowdown",), ("hang",), ("order",), ("stall", "captures")]),
    failures=failures,
).map(lambda verdict: replace(verdict, machines=()) if verdict.kind == "job" else verdict)
ladders = st.one_of(
    st.just({}),
    st.just({"order": "published", "network_alerts": "evict"}),
    st.lists(
        st.fixed_dictionaries(
            {"rung": st.sampled_from([name for name in ACTION_OF if name != "page"] + ["diagnose"]), "on": st.just(list(TROUBLES))},
            optional={"times": st.integers(1, 2), "after": st.integers(0, 1)},
        ),
        max_size=5,
        unique_by=lambda item: item["rung"],
    ).map(lambda rungs: {"rungs": rungs}),
)
configs = st.builds(
    PolicyConfig,
    ladder=ladders,
    dry_run=st.booleans(),
    max_restarts=st.integers(0, 3),
    max_evictions_per_job=st.one_of(st.none(), st.integers(0, 6)),
    max_evictions_per_day=st.one_of(st.none(), st.integers(0, 6)),
    max_evictions_per_hour=st.one_of(st.none(), st.integers(0, 4)),
    max_machines_per_hour=st.one_of(st.none(), st.integers(0, 5)),
    breaker_share=st.floats(0.05, 1.0),
    breaker_window_s=st.sampled_from([60.0, 600.0]),
    cooldown_s=st.sampled_from([0.0, 30.0]),
    domain_kinds=st.sampled_from([(), ("rack", "switch")]),
)
past = st.lists(
    st.builds(
        PastEviction,
        time_s=st.floats(NOW_S - 5000, NOW_S),
        job=st.sampled_from(["llm", "llm", "other"]),
        machines=machine_sets,
        action=st.sampled_from(["evict", "restart"]),
        operation_id=st.uuids().map(str),
        finished=st.sampled_from([True, True, True, False]),
    ),
    max_size=4,
).map(tuple)
histories = st.builds(
    History,
    actions=past,
    begun_s=st.sampled_from([None, NOW_S - 5000, NOW_S + 60]),
    barred=st.frozensets(st.sampled_from(MACHINES + STANDBYS), max_size=2),
    restarts=st.integers(0, 4),
    failures=failures,
    evicted_s=st.dictionaries(st.sampled_from(MACHINES + STANDBYS), st.just((NOW_S - 60.0, NOW_S - 50.0)), max_size=2),
    rules=st.sampled_from([(), (RuleRecord("slowdown", "evict", 5, (), (NOW_S,) * 5),)]),
)


def around(now_s: float, machines: tuple[str, ...] = MACHINES, generation: int = 1) -> PolicyContext:
    job = JobView("llm", generation, "running", machines, STANDBYS, (), {}, 0.0, 0.0)
    return PolicyContext(now_s, job, standbys_ready=STANDBYS, domains=DOMAINS, gpus=8, since_checkpoint_s=5.0)


contexts = st.builds(
    lambda dead, ready: replace(around(NOW_S), workers_dead=dead, standbys_ready=STANDBYS[:ready]), st.booleans(), st.integers(0, 4)
)
inputs = (st.lists(verdicts_, max_size=4), histories, contexts, configs)


def evictions_since(history: History, since_s: float) -> list[PastEviction]:
    return [item for item in history.actions if item.job == "llm" and item.action == "evict" and item.time_s >= since_s]


def evicted_since(history: History, since_s: float) -> int:
    return sum(len(item.machines) for item in evictions_since(history, since_s))


def limits_of(config: PolicyConfig) -> tuple[int, int, int]:
    """Evictions of a run, a day and an hour of eight machines, which get the least that any job gets where nothing is set."""
    job, day, hour = config.max_evictions_per_job, config.max_evictions_per_day, config.max_evictions_per_hour
    return (8 if job is None else job, 8 if day is None else day, 4 if hour is None else hour)


@given(*inputs)
@example(
    verdicts=[Verdict(NOW_S, "machine", "evict", ("m0",), "stall", 1.0, NOW_S - 100)],
    history=History(barred=frozenset({"m0"})),
    context=around(NOW_S),
    config=PolicyConfig(dry_run=False, breaker_share=1.0),
)
@settings(max_examples=40, deadline=None)
def test_limits_hold_whatever_comes(verdicts: list[Verdict], history: History, context: PolicyContext, config: PolicyConfig) -> None:
    decisions = Policy(config).decide(verdicts, history, context)
    acting = [item for item in decisions if item.action in ("evict", "trial", "restart")]
    assert len(acting) <= 1
    for item in acting:
        assert item.price is not None and ACTION_OF[item.rung] == item.action and item.trouble in TROUBLES
        assert not {*item.replacements} & {*history.evicted_s}, "evicted twice, and not tested since"
        if item.action in ("restart", "trial"):
            assert history.restarts < config.max_restarts
            continue
        assert item.verdict.sources != ("slowdown",) or not history.rules, "a demoted rule evicts none by itself"
        size = len(item.machines)
        assert not config.dry_run
        job, day, hour = limits_of(config)
        assert len(evictions_since(history, float("-inf"))) < job
        assert len(evictions_since(history, NOW_S - 86_400)) < day
        assert len(evictions_since(history, NOW_S - 3600)) < hour
        assert evicted_since(history, NOW_S - 3600) + size <= machine_limit(config, 1, hour)
        assert evicted_since(history, NOW_S - config.breaker_window_s) + size <= max(1, int(config.breaker_share * 8))
        assert not set(item.machines) & history.barred and set(item.machines) <= set(MACHINES)
        assert len(set(item.replacements)) == size and set(item.replacements) <= set(context.standbys_ready) - history.barred
        accused = {
            name for verdict in verdicts for name in verdict.machines if verdict.tier != "watch" and verdict.kind in ("machine", "group")
        }
        assert not set(item.replacements) & accused


@given(*inputs)
@settings(max_examples=40, deadline=None)
def test_no_verdict_is_half_obeyed_or_forgotten(
    verdicts: list[Verdict], history: History, context: PolicyContext, config: PolicyConfig
) -> None:
    verdicts = [replace(verdict, failures=()) for verdict in verdicts]  # whose failures speak for the program asks for a restart of the job
    decisions = Policy(config).decide(verdicts, history, context)
    evicted = {machine for item in decisions if item.action == "evict" for machine in item.machines}
    whole = [set(verdict.machines) for verdict in verdicts if verdict.tier == "evict" and set(verdict.machines) <= evicted]
    assert evicted == set().union(*whole)
    for verdict in verdicts:
        own = (item.verdict == verdict or set(verdict.machines) <= set(item.machines) for item in decisions)
        assert any(own), "every verdict gets an answer"
    assert all(item.stages and item.detail for item in decisions)


@given(*inputs, st.sampled_from(["all", "job", "rack"]))
@settings(max_examples=40, deadline=None)
def test_a_pause_stops_actions_and_never_a_page(
    verdicts: list[Verdict], history: History, context: PolicyContext, config: PolicyConfig, scope: str
) -> None:
    target = {"all": None, "job": "llm", "rack": "r0"}[scope]
    pause = Pause(scope, target, NOW_S + 60, "firmware")  # type: ignore[arg-type]
    free = Policy(config).decide(verdicts, history, context)
    quiet = Policy(config).decide(verdicts, replace(history, pauses=(pause,)), context)
    if scope != "rack":
        assert all(item.action in ("page", "none") for item in quiet)

    def loud(decisions: list[Decision]) -> set[str]:
        return {machine for item in decisions if item.action != "none" for machine in item.machines}

    assert loud(free) <= loud(quiet)
    if any(item.action != "none" for item in free):
        assert any(item.action != "none" for item in quiet)


@given(*inputs)
@settings(max_examples=40, deadline=None)
def test_the_order_of_verdicts_changes_nothing(
    verdicts: list[Verdict], history: History, context: PolicyContext, config: PolicyConfig
) -> None:
    def acting(ordered: list[Verdict]) -> set[str]:
        return {item.operation_id for item in Policy(config).decide(ordered, history, context) if item.action in ("evict", "restart")}

    assert acting(verdicts) == acting(verdicts[::-1])


@given(st.lists(st.tuples(st.floats(1.0, 400.0), st.lists(verdicts_, min_size=1, max_size=3)), max_size=25), configs)
@settings(max_examples=25, deadline=None)
def test_breaker_and_budgets_hold_over_any_sequence(events: list[tuple[float, list[Verdict]]], config: PolicyConfig) -> None:
    """Everything that the policy wants is done, at once and with success; evicted machines come back repaired."""
    config = replace(config, dry_run=False)
    policy = Policy(config)
    machines, pool, now_s, done = MACHINES, STANDBYS, NOW_S, list[PastEviction]()
    for generation, (pause_s, verdicts) in enumerate(events):
        now_s += pause_s
        context = replace(around(now_s, machines, generation), standbys_ready=pool)
        history = History(actions=tuple(done), restarts=sum(item.action == "restart" for item in done))
        for item in policy.decide(verdicts, history, context):
            again = policy.recheck(item, history, context)
            if again.action not in ("evict", "restart"):
                assert item.action not in ("evict", "restart"), "nothing changed, so a recheck agrees"
                continue
            action = "evict" if again.action == "evict" else "restart"
            done.append(PastEviction(now_s, "llm", again.machines, action, again.operation_id, True))  # type: ignore[arg-type]
            machines = (*(name for name in machines if name not in again.machines), *again.replacements)
            pool = (*(name for name in pool if name not in again.replacements), *again.machines)
    evictions = [item for item in done if item.action == "evict"]
    job, day, hour = limits_of(config)
    assert len(evictions) <= min(job, day), "all of it takes less than a day"
    for span_s, limit in ((config.breaker_window_s, max(1, int(config.breaker_share * 8))), (3600.0, machine_limit(config, 1, hour))):
        for last in evictions:
            within = [item for item in evictions if last.time_s - span_s <= item.time_s <= last.time_s]
            assert sum(len(item.machines) for item in within) <= limit
            assert span_s < 3600.0 or len(within) <= hour
    assert sum(item.action == "restart" for item in done) <= config.max_restarts
    assert len(machines) == 8 and len({item.operation_id for item in done}) == len(done)
