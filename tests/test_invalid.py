"""A wrong setting in a file is one line that says how to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.config.reading import read_config
from minder.model.errors import ConfigError

NAME = 'name = "j"\n'
MACHINE = '[[machines]]\nname = "a"\nagent = "http://127.0.0.1:9"\n'


@pytest.mark.parametrize(("text", "said"), [
    (f'nam = "j"\n{NAME}{MACHINE}', "nam: there is no such setting: did you mean name?"),
    (NAME + MACHINE.replace("agent", "agentt"), "machines.0.agentt: there is no such setting: did you mean agent?"),
    (f"{NAME}zzz = 1\n{MACHINE}", "zzz: there is no such setting: docs/reference/configuration.md lists all"),
    (f"{NAME}{MACHINE}[pool]\nzzz = 1\n", "pool.zzz: there is no such setting: use one of "),
    (f'{NAME}machines = ["a"]', "machines.0: is 'a', which is no table: write it as [[machines]] with a line for each setting"),
    (f'{NAME}ranks_per_machine = "eight"\n{MACHINE}', "ranks_per_machine: must be a valid integer, not 'eight'"),
    (f'{NAME}{MACHINE}[telemetry]\nsource = "skrape"\n', "telemetry.source: must be 'auto', 'scrape' or 'prometheus', not 'skrape'"),
    (MACHINE, "name: is missing: give it"),
])  # fmt: skip
def test_it_names_the_key_and_what_to_write_instead(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_config(path)
    assert str(refused.value).startswith(f"{path}: {said}") and "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.toml cannot be read: No such file or directory: give the path of a job.toml"):
        read_config(tmp_path / "nowhere.toml")


def test_a_value_that_may_hold_a_password_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f'{NAME}{MACHINE}[telemetry]\nurl = ["http://user:hunter2@prometheus"]\n')
    with pytest.raises(ConfigError) as refused:
        read_config(path)
    assert "hunter2" not in str(refused.value)
