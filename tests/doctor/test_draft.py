"""The drafted job.toml: what it says of the join and of the way in, what stays secret, and that two drafts share nothing."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from minder.config import load_config
from minder.doctor.draft import Draft, Reached, draft_name
from minder.doctor.proposal import Proposal, propose
from minder.ingest.sources.identity import Join
from minder.model.errors import BadInputError
from tests.doctor.recorded import DATA, NOW_S, site

SITE = site(DATA / "01-k8s-two-exporters")


@pytest.fixture(scope="module")
def proposal() -> Proposal:
    return propose(SITE, NOW_S)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_draft_is_read_back_with_the_join(proposal: Proposal, tmp_path: Path) -> None:
    files = Draft(tmp_path / "job.toml", proposal, SITE, "llm").write()
    assert files == [tmp_path / "job.toml"] and mode(files[0]) == 0o644
    config = load_config(files[0])
    machines = config.telemetry.identity()
    assert machines.labels == ("Hostname",) and machines.joins == (Join("node_uname_info", (("instance", "instance"),), "nodename"),)
    assert config.telemetry.mapping == "dcgm+node" and config.telemetry.interval_s == 15.0
    assert [machine.name for machine in config.machines] == [f"gpu-h100-0{number}" for number in range(1, 5)]


def test_a_password_is_in_a_file_of_its_own_that_only_its_owner_reads(proposal: Proposal, tmp_path: Path) -> None:
    made = Draft(tmp_path / "job.toml", proposal, SITE, "llm", Reached(username="obs", password="s3cret"))
    files = made.write()
    assert [file.name for file in files] == ["job.toml", "job.password"] and [mode(file) for file in files] == [0o600, 0o600]
    assert "s3cret" not in files[0].read_text()
    access = load_config(files[0]).telemetry.access()
    assert (access.username, access.password) == ("obs", "s3cret")


def test_the_way_in_is_kept(proposal: Proposal, tmp_path: Path) -> None:
    reached = Reached(bearer_token_file="/etc/minder/token", ca_file="/etc/ssl/site.pem", tenant="ml", headers={"X-A": "b"})
    made = Draft(tmp_path / "job.toml", replace(proposal, selector='job!~"pods"'), SITE, "llm", reached)
    text = made.text()
    for line in ('bearer_token_file = "/etc/minder/token"', 'ca_file = "/etc/ssl/site.pem"', 'tenant = "ml"', 'headers = { "X-A" = "b" }'):
        assert line in text
    assert 'selector = "job!~\\"pods\\""' in text
    assert mode(made.write()[0]) == 0o600


def test_two_drafts_share_neither_name_nor_port_nor_state(proposal: Proposal, tmp_path: Path) -> None:
    configs = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "job.toml"
        Draft(path, proposal, SITE, draft_name(path)).write()
        configs.append(load_config(path))
    one, two = configs
    assert one.name != two.name and one.name.startswith("a-") and one.state_dir != two.state_dir and one.state_dir
    assert one.metrics.address != two.metrics.address


def test_nothing_is_written_over_and_nothing_is_half_written(proposal: Proposal, tmp_path: Path) -> None:
    (tmp_path / "job.password").write_text("old")
    made = Draft(tmp_path / "job.toml", proposal, SITE, "llm", Reached(username="obs", password="new"))
    with pytest.raises(BadInputError, match=r"job\.password is there already"):
        made.write()
    assert not (tmp_path / "job.toml").exists() and (tmp_path / "job.password").read_text() == "old"
    with pytest.raises(BadInputError, match="nothing to draft"):
        Draft(tmp_path / "job.toml", replace(proposal, identity=None), SITE, "llm").write()


def test_a_folder_that_is_not_there_is_named_with_the_remedy(proposal: Proposal, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"there is no folder .*elsewhere: make it"):
        Draft(tmp_path / "elsewhere" / "job.toml", proposal, SITE, "llm").write()


def test_ports_of_many_drafts_hardly_ever_meet(proposal: Proposal) -> None:
    ports = {Draft(Path(f"/srv/job-{number}/job.toml"), proposal, SITE, "llm").port for number in range(40)}
    assert len(ports) >= 39 and all(1024 < port < 32768 for port in ports)
