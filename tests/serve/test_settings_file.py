from __future__ import annotations

from pathlib import Path

import pytest

from minder.model.errors import ConfigError
from serve.settings_file import load_settings

HOOK = '[[notify]]\nname = "a"\nkind = "webhook"\nurl = "https://h.example/x"\n'


def write(folder: Path, text: str, secret: str = "0123456789abcdef", mode: int = 0o600) -> Path:
    (folder / "secret").write_text(secret)
    (folder / "secret").chmod(mode)
    path = folder / "service.toml"
    path.write_text(text)
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    chat = '[[notify]]\nname = "chat"\nkind = "slack"\nurl_file = "secret"\n'
    text = 'public_url = "https://minder.example.org"\n' + HOOK + 'secret_file = "secret"\ntiers = ["evict"]\njobs = ["llm-*"]\n' + chat
    found = load_settings(write(tmp_path, text, "https://hooks.example.org/T0/B0/abc"))
    assert found.notify[0].secret_file == str(tmp_path / "secret") and found.notify[0].wants_job("llm-70b")
    assert found.notify[1].address() == "https://hooks.example.org/T0/B0/abc"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "x: there is no such setting: use one of jobs, notify, "),
        ("x =", "is not TOML"),
        (HOOK, "needs a secret_file"),
        (HOOK + 'secret_file = "nowhere"', "secret_file: token file .*nowhere"),
        (HOOK + 'secret_file = "secret"\n' + HOOK + 'secret_file = "secret"', 'notify: "a" stands twice'),
        (HOOK + 'secret_file = "secret"\ntiers = []', "tiers and tell must not be empty"),
        (HOOK + 'secret_file = "secret"\nredact = ["("]', "is no regular expression"),
        (HOOK.replace("https://h", "https://bob:hunter2@h") + 'secret_file = "secret"', "holds a user or password"),
        (HOOK.replace("https", "file") + 'secret_file = "secret"', "url is no address"),
        (HOOK.replace("webhook", "slack") + 'url_file = "secret"', "either url or url_file"),
        ('[[notify]]\nname = "a"\nkind = "slack"\nurl_file = "secret"', "url_file is no address"),
        ('public_url = "minder"', "public_url is no address"),
    ],
)
def test_what_is_wrong_is_one_line_without_secrets(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load_settings(write(tmp_path, text))
    assert "\n" not in str(caught.value) and "hunter2" not in str(caught.value) and "0123456789abcdef" not in str(caught.value)


def test_a_secret_that_is_short_or_open_to_all_is_refused(tmp_path: Path) -> None:
    text = HOOK + 'secret_file = "secret"'
    with pytest.raises(ConfigError, match="shorter than 16"):
        load_settings(write(tmp_path, text, "short"))
    with pytest.raises(ConfigError, match="can be read by everybody"):
        load_settings(write(tmp_path, text, mode=0o644))
