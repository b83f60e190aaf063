"""Where settings come from: flag, environment, profile, file, default, in this order."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from cli_calls import Outcome, call
from pilotfish.cli import COMMANDS, cli
from pilotfish.cli.configuration import config_path, key_of
from tiny import write_header

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Write the configuration file."""

    def write(text: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("PILOTFISH_CONFIG", str(path))
        return path

    return write


def settings(*args: str, **environment: str) -> dict[str, tuple[object, str]]:
    """Return what `info` says is set, and where."""
    found = call("info", *args, "--json", **environment).json["info"]["settings"]
    return {key: (setting["value"], setting["source"]) for key, setting in found.items()}


LEVELS = ("config file", "profile p", "environment", "flag")


@pytest.mark.parametrize("given", [c for n in range(5) for c in itertools.combinations(LEVELS, n)], ids=str)
def test_of_all_places_the_nearest_counts(
    tmp_path: Path, configure: Callable[[str], Path], given: tuple[str, ...]
) -> None:
    """Whatever the places that set the context, the last of them in the order counts, and is named."""
    values = {level: 100 + index for index, level in enumerate(LEVELS)}
    text = f"context = {values['config file']}\n" if "config file" in given else ""
    text += "[profiles.p]\n" + (f"context = {values['profile p']}" if "profile p" in given else "")
    configure(text)
    args = ["-m", write_header(tmp_path), "--profile", "p"]
    args += ["--context", str(values["flag"])] if "flag" in given else []
    environment = {"PILOTFISH_CONTEXT": str(values["environment"])} if "environment" in given else {}
    expected = (values[given[-1]], given[-1]) if given else (None, "default")
    assert settings(*args, **environment)["context"] == expected
    report = call("info", *args, "--json", **environment).json
    assert report["info"]["context"] == (expected[0] or 8192)


def test_the_file_reaches_the_command(tiny: Callable[..., Any], configure: Callable[[str], Path]) -> None:
    loaded = tiny()
    configure(
        'model = "m"\ndraft = ["suffix", "other"]\nthreads = 3\nmax-tokens = 2\nraw = true\nseed = 7\n'
        'temperature = 1\nstop = ["a b", "\\n"]\ndraft_length = 0\n'
        '[profiles.short]\nmax_tokens = 1\ndraft = "off"'
    )
    report = call("run", "hi", "--json").json
    assert loaded.asked == ("m", ["suffix", "other"], None, 3)
    used = report["settings"]
    assert (used["max_tokens"], used["raw"], used["draft_length"]) == (2, True, 0)
    assert (used["temperature"], report["seed"], used["stop"]) == (1.0, 7, ["a b", "\n"])
    assert call("run", "hi", "--json", "--profile", "short").json["settings"]["max_tokens"] == 1
    assert loaded.asked == ("m", ["off"], None, 3)
    assert call("run", "hi", "--json", PILOTFISH_PROFILE="short").json["settings"]["max_tokens"] == 1
    assert call("run", "hi", "--json", "--max-tokens", "4").json["settings"]["max_tokens"] == 4


def test_other_commands_take_what_they_know(configure: Callable[[str], Path]) -> None:
    """A setting of one command does not disturb another; those of groups are reached too."""
    configure('modes = "none-such"\nmax_tokens = 3\noffline = true')
    assert "modes" in call("bench", "-m", "x").error
    assert "offline is wanted" in call("pull", "smollm2-135m").error
    assert call("models", "--json").json["kind"] == "models"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("thread = 4", "unknown setting 'thread' (did you mean threads?"),
        ("[profiles.p]\nthread = 4", "profile 'p': unknown setting 'thread'"),
        ("[profile.p]\nthreads = 4", "unknown setting 'profile'"),
        ("json = true", "unknown setting 'json'"),
        ("profile = 'p'", "unknown setting 'profile'"),
        ("threads = '4'", "threads is '4' (it is a whole number)"),
        ("threads = true", "threads is 'True' (it is a whole number)"),
        ("threads = 4.0", "threads is '4.0' (it is a whole number)"),
        ("threads = [4]", "threads is '[4]' (it is a whole number)"),
        ("temperature = 'hot'", "temperature is 'hot' (it is a number)"),
        ("temperature = true", "temperature is 'True' (it is a number)"),
        ("raw = 1", "raw is '1' (it is true or false)"),
        ("draft_slim = 'on'", "draft_slim is 'on' (it is one of auto, off)"),
        ("draft = [true]", "(it is a text, or a list)"),
        ("draft = {a = 1}", "(it is a text, or a list)"),
        ("model = 1.5", "model is '1.5' (it is a text)"),
        ("max_tokens = 1\nmax-tokens = 1", "max_tokens is set twice"),
        ("profiles = 3", "profiles holds no tables"),
        ("[profiles]\np = 3", "profiles holds no tables"),
        ("threads = ", "is no TOML"),
        ("a = 1\na = 2", "is no TOML"),
        ("x = " + "[" * 5000, "is no TOML"),
        ("#" * ((1 << 20) + 1), "more than 1048576 bytes"),
        ("thr\x1beads = 1", "is no TOML"),
    ],
)
def test_what_makes_no_sense_in_the_file_is_named(
    configure: Callable[[str], Path], text: str, words: str
) -> None:
    path = configure(text)
    error = call("run", "-m", "x", "hi").error
    assert words in error
    assert str(path) in error
    assert "\x1b" not in error


def test_a_value_out_of_range_is_refused_as_from_a_flag(
    tiny: Callable[..., Any], configure: Callable[[str], Path]
) -> None:
    tiny()
    configure("max_tokens = 0")
    assert "max_tokens is 0" in call("run", "-m", "x", "hi").error


def test_a_profile_that_is_not_there_is_answered_by_those_there_are(
    configure: Callable[[str], Path],
) -> None:
    assert "write [profiles.NAME]" in call("run", "hi", "--profile", "q").error
    path = configure("[profiles.one]\n[profiles.two]")
    error = call("run", "hi", "--profile", "q").error
    assert f"no profile is named 'q' ({path} has: one, two)" in error


def test_a_file_that_is_named_has_to_be_there(tmp_path: Path) -> None:
    def ask(path: object) -> Outcome:
        return call("pull", "none-such", PILOTFISH_CONFIG=str(path))

    assert f"there is no file {tmp_path / 'x'}" in ask(tmp_path / "x").error
    assert "no regular file" in ask(tmp_path).error
    (tmp_path / "latin").write_bytes(b"# \xe9")
    assert "is no TOML" in ask(tmp_path / "latin").error


def test_help_and_version_do_not_need_a_file_that_is_right(configure: Callable[[str], Path]) -> None:
    configure("not = [toml")
    for args in (("--version",), ("--help",), ("run", "--help"), ("bench", "speed", "--help")):
        assert call(*args).code == 0


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "/home/me/.config/pilotfish/config.toml"),
        ("linux", {"XDG_CONFIG_HOME": "/xdg"}, "/xdg/pilotfish/config.toml"),
        ("linux", {"XDG_CONFIG_HOME": "not/absolute"}, "/home/me/.config/pilotfish/config.toml"),
        ("darwin", {}, "/home/me/Library/Application Support/pilotfish/config.toml"),
        ("linux", {"PILOTFISH_CONFIG": "~/my.toml"}, "/home/me/my.toml"),
    ],
)
def test_the_file_is_where_the_platform_has_such_files(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: str
) -> None:
    for name in ("PILOTFISH_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/home/me"} | variables).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert config_path() == Path(expected)


def test_without_a_file_nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PILOTFISH_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    path = write_header(tmp_path)
    assert {source for _, source in settings(path).values()} == {"flag", "default"}
    (tmp_path / "pilotfish").mkdir()
    (tmp_path / "pilotfish" / "config.toml").write_text("threads = 5")
    assert settings(path)["threads"] == (5, "config file")
    assert settings(path, PILOTFISH_CONFIG=os.devnull)["threads"] == (None, "default")


def test_every_option_that_the_environment_sets_can_stand_in_the_file() -> None:
    """One name for three places: --max-tokens, PILOTFISH_MAX_TOKENS, max_tokens; each takes --profile too."""
    root = click.Context(cli)
    seen = set()
    for name in COMMANDS:
        found = cli.get_command(root, name)
        assert found is not None
        for command in found.commands.values() if isinstance(found, click.Group) else [found]:
            keys = {key_of(option): option for option in command.params if key_of(option)}
            assert bool(keys) == any(option.name == "profile" for option in command.params)
            for key, option in keys.items():
                assert f"--{str(key).replace('_', '-')}" in option.opts
                seen.add(key)
    assert {"model", "draft", "threads", "context", "offline", "max_tokens", "temperature", "stop"} <= seen
