"""Recipes: the packaged ones are valid, and a wrong key is told with file and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.model.errors import ConfigError
from minder.offline.training.recipe import load_training_recipe


@pytest.mark.parametrize("name", [path.stem for path in (Path(__file__).parents[2] / "models/recipes").glob("*.toml")])
def test_the_packaged_recipes_are_valid(name: str) -> None:
    assert load_training_recipe(name).name == name


def test_a_folder_that_is_called_like_a_recipe_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()  # as `make docs` leaves one in a checkout
    monkeypatch.chdir(tmp_path)
    assert load_training_recipe("site").name == "site"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('name = "x"\n[data]\nrecordings = ["r"]\n[data.simulated]\n', "simulated"),
        ('name = "x"\n[data]\n', "empty"),
        ('name = "x"\ndetector = "crystal"\n[data]\nrecordings = ["r"]\n', "detector"),
        ('name = "x"\n[data]\nrecordings = ["r"]\nheld_back = 1.5\n', "held_back"),
        ("name = \n", "TOML"),
    ],
)
def test_a_wrong_recipe_is_one_line(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=word) as caught:
        load_training_recipe(str(path))
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_recipe_that_there_is_not_names_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="reference"):
        load_training_recipe("crystal")


def test_a_prometheus_is_reached_and_read_as_in_job_toml(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    (tmp_path / "secret").chmod(0o600)
    path = tmp_path / "recipe.toml"
    path.write_text(
        'name = "x"\n[data.prometheus]\nurl = "https://p"\nmachines = ["n1"]\nminutes = 5\nmachine_label = ["Hostname", "node"]\n'
        'username = "obs"\npassword_file = "secret"\n'
        'join = [{ series = "node_uname_info", on = { instance = "instance" }, take = "nodename" }]\n'
    )
    rules = load_training_recipe(str(path)).data.prometheus
    assert rules is not None and rules.options().access.password == "s3cret"
    assert rules.identity().labels == ("Hostname", "node") and rules.identity().join_series() == ("node_uname_info",)
