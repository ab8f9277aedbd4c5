"""job.toml: what is wrong is said in one line that names the file and the key."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minder.act.controller.diagnosis.replaying import ReplaySettings
from minder.config import JobConfig, load_config
from minder.model.errors import BadInputError, ConfigError
from minder.wire.machine_tokens import give_token
from minder.wire.tokens import read_token

GOOD = """
name = "llm-70b"
ranks_per_machine = 2
agent_token_file = "{tokens}/agent"
launcher_token_file = "{tokens}/launcher"

[parallelism]
tensor = 2

[[machines]]
name = "m0"
agent = "http://10.0.0.1:9401"
launcher = "http://10.0.0.1:9402"
rack = "r1"

[[machines]]
name = "m1"
agent = "http://10.0.0.2:9401"
launcher = "http://10.0.0.2:9402"

[[machines]]
name = "s0"
agent = "http://10.0.0.9:9401"
launcher = "http://10.0.0.9:9402"
standby = true
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """write(old, new): the good configuration with one text replaced, in a file; its tokens beside it."""
    for name in ("agent", "launcher"):
        (tmp_path / name).write_text(f"{name}-token\n")
        (tmp_path / name).chmod(0o600)

    def make(old: str = "", new: str = "") -> Path:
        text = GOOD.format(tokens=tmp_path)
        assert old in text
        (tmp_path / "job.toml").write_text(text.replace(old, new, 1) if old else text + new)
        return tmp_path / "job.toml"

    return make


def test_a_good_file_gives_machines_ranks_and_endpoints(write: Callable[..., Path]) -> None:
    config = load_config(write())
    topology = config.topology()
    assert topology.rank_machine == {0: "m0", 1: "m0", 2: "m1", 3: "m1"}
    assert topology.standbys == ("s0",)
    assert topology.parallelism.data == 2
    first = config.endpoints()[0]
    assert first.agent is not None and first.agent.token == "agent-token"
    assert first.launcher is not None and (first.launcher.url, first.launcher.token) == ("http://10.0.0.1:9402", "launcher-token")


def test_what_a_replay_runs_is_a_table_of_its_own(write: Callable[..., Path]) -> None:
    assert load_config(write()).replay.settings == ReplaySettings("reference", 100, 2, 0, 0)
    settings = load_config(write(new='[replay]\ncommand = "script"\nruns = 5\nlayers = 80\n')).replay.settings
    assert (settings.program, settings.runs, settings.layers, settings.meetings) == ("script", 5, 80, 5)


BAD = {
    "a command of a replay": ("[parallelism]", '[replay]\ncommand = "rm -rf /"\n[parallelism]', "replay.command"),
    "unknown key": ('name = "llm-70b"', 'name = "llm-70b"\nnoise = 3', "noise"),
    "unknown key of a machine": ('rack = "r1"', 'rak = "r1"', "machines.0.rak"),
    "unknown table": ("[parallelism]", "[telemetri]\nurl = 'x'\n[parallelism]", "telemetri"),
    "unknown axis": ("tensor = 2", "tensors = 2", "parallelism"),
    "unknown setting of the policy": ("[parallelism]", "[policy]\nmax_restart = 1\n[parallelism]", "policy.max_restart"),
    "senseless policy": ("[parallelism]", "[policy]\nbreaker_share = 7.0\n[parallelism]", "policy.breaker_share"),
    "counts that disagree": ("tensor = 2", "tensor = 2\ndata = 5", "[parallelism]"),
    "counts that do not divide": ("tensor = 2", "tensor = 3", "[parallelism]"),
    "a machine twice": ('name = "m1"', 'name = "m0"', "m0"),
    "a machine that is a standby too": ('name = "s0"', 'name = "m0"', "m0"),
    "a wrong type": ("ranks_per_machine = 2", 'ranks_per_machine = "two"', "ranks_per_machine"),
    "no ranks": ("ranks_per_machine = 2", "ranks_per_machine = 0", "ranks_per_machine"),
    "a machine that is no table": ("[[machines]]\nname = \"m0\"", "[[machines]]\nname = 7", "machines.0.name"),
    "a name with a space": ('name = "llm-70b"', 'name = "llm 70b"', "name"),
    "no name": ('name = "llm-70b"', "", "name"),
    "a URL without a scheme": ("http://10.0.0.1:9401", "10.0.0.1:9401", "machines.0.agent"),
    "a URL with a senseless port": ("http://10.0.0.1:9402", "http://10.0.0.1:99999", "machines.0.launcher"),
    "an unknown source": ("[parallelism]", '[telemetry]\nsource = "graphite"\n[parallelism]', "telemetry.source"),
    "no interval": ("[parallelism]", "[telemetry]\ninterval_s = 0\n[parallelism]", "telemetry.interval_s"),
    "prometheus without its address": ("[parallelism]", '[telemetry]\nsource = "prometheus"\n[parallelism]', "telemetry.url"),
    "more machines at least than there are": ("[parallelism]", "min_machines = 3\n[parallelism]", "min_machines"),
    "a size that changes where checkpoints cannot move": (
        "[parallelism]", 'min_machines = 1\ncheckpoints = "local"\n[parallelism]', "min_machines"
    ),
    "a size that changes where steps are kept in memory": (
        "[parallelism]", 'min_machines = 1\ncheckpoints = "memory"\n[parallelism]', "min_machines"
    ),
    "growth of a job that never shrinks": ("[parallelism]", "grow_after_s = 60.0\n[parallelism]", "grow_after_s"),
    "not TOML": ('name = "llm-70b"', "name = llm", "TOML"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "key"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_is_one_line_with_file_and_key(write: Callable[..., Path], old: str, new: str, key: str) -> None:
    path = write(old, new)
    with pytest.raises(BadInputError) as caught:
        load_config(path)
    message = str(caught.value)
    assert str(path) in message and key in message and "\n" not in message
    assert caught.value.exit_code == 2


def test_no_machines_and_only_standbys_are_refused(tmp_path: Path) -> None:
    for body in ("", '[[machines]]\nname = "s0"\nstandby = true\n'):
        (tmp_path / "job.toml").write_text(f'name = "x"\n{body}')
        with pytest.raises(ConfigError, match=r"job\.toml.*machines"):
            load_config(tmp_path / "job.toml")


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.toml", tmp_path):
        with pytest.raises(ConfigError, match=str(path)):
            load_config(path)


@pytest.mark.parametrize("key", ["agent", "launcher"])
def test_a_missing_token_file_names_the_key_and_the_file(write: Callable[..., Path], tmp_path: Path, key: str) -> None:
    path = write()
    (tmp_path / key).unlink()
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert f"{key}_token_file" in str(caught.value) and str(tmp_path / key) in str(caught.value) and str(path) in str(caught.value)


def test_a_token_that_everybody_may_read_is_refused_with_the_remedy(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write()
    (tmp_path / "launcher").chmod(0o644)
    with pytest.raises(ConfigError, match=r"job\.toml.*launcher_token_file.*chmod 600"):
        load_config(path)
    assert stat.S_IMODE((tmp_path / "launcher").stat().st_mode) == 0o644


def test_a_job_that_is_only_watched_has_no_launchers(write: Callable[..., Path]) -> None:
    assert all(item.launcher is None for item in load_config(write()).without_launchers().endpoints())


def test_a_job_that_is_only_watched_needs_no_launcher_token(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write()
    (tmp_path / "launcher").unlink()
    config = load_config(path, only_watch=True)
    assert [item.agent.token for item in config.endpoints() if item.agent] == ["agent-token"] * 3
    assert all(item.launcher is None for item in config.endpoints())


def test_relative_paths_are_relative_to_the_file_that_names_them(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(f'"{tmp_path}/agent"', '"agent"')
    named = 'state_dir = "state"\nrecord_dir = "../records"\ncheckpoint_dir = "/shared/checkpoints"\n'
    path.write_text(path.read_text().replace("[parallelism]", f'{named}\n[telemetry]\nmapping = "minder+own.toml"\n\n[parallelism]'))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for given_as in (path, Path("..") / "job.toml"):
        config = load_config(given_as)
        assert Path(str(config.agent_token_file)).samefile(tmp_path / "agent")
        assert Path(str(config.state_dir)).resolve() == tmp_path / "state"
        assert Path(str(config.record_dir)).resolve() == tmp_path.parent / "records"
        assert config.checkpoint_dir == "/shared/checkpoints"
        names = config.telemetry.mapping.split("+")
        assert names[0] == "minder" and Path(names[1]).resolve() == tmp_path / "own.toml"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    key=st.sampled_from(sorted(JobConfig.model_fields)), value=st.sampled_from(["7", "-1", "true", '"x"', "[1]", "{ a = 1 }", "nan", '""'])
)
def test_no_value_of_any_key_ends_in_a_traceback(write: Callable[..., Path], key: str, value: str) -> None:
    path = write()
    body = path.read_text()
    head, tables = body.split("[parallelism]", 1)
    kept = "\n".join(line for line in head.splitlines() if not line.startswith(f"{key} ="))
    path.write_text(f"{key} = {value}\n{kept}\n" + ("" if key == "parallelism" else "[parallelism]" + tables))
    try:
        load_config(path).endpoints()
    except BadInputError as error:
        assert "\n" not in str(error)


def test_each_machine_has_its_own_token_and_launchers_may_have_others(write: Callable[..., Path], tmp_path: Path) -> None:
    for folder in ("a", "l"):
        for name in ("m0", "m1", "s0"):
            give_token(tmp_path / folder, name)
    agents = f'agent_token_file = "{tmp_path}/agent"\nlauncher_token_file = "{tmp_path}/launcher"'
    both = load_config(write(agents, 'machine_token_dir = "a"')).endpoints()
    assert [item.agent.token for item in both if item.agent] == [read_token(tmp_path / "a" / name) for name in ("m0", "m1", "s0")]
    assert [item.launcher.token for item in both if item.launcher] == [item.agent.token for item in both if item.agent]
    config = load_config(write(agents, 'machine_token_dir = "a"\nlauncher_token_dir = "l"'))
    assert [item.launcher.token for item in config.endpoints() if item.launcher] == [
        read_token(tmp_path / "l" / n) for n in ("m0", "m1", "s0")
    ]
    assert config.shared_tokens() == [] and load_config(write()).shared_tokens() == ["agent_token_file", "launcher_token_file"]
    (tmp_path / "a" / "m1").unlink()
    with pytest.raises(ConfigError, match=r"job\.toml: machine_token_dir: no token of m1 in .*minder token machine m1"):
        load_config(write(agents, 'machine_token_dir = "a"'))


def test_a_folder_and_a_file_of_tokens_are_one_too_many(write: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match="give machine_token_dir or agent_token_file, not both"):
        load_config(write("ranks_per_machine = 2", 'machine_token_dir = "tokens"'))
