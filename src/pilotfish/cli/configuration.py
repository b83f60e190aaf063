"""Defaults of options from a configuration file (TOML) and its profiles.

A flag goes before the environment, that before the profile, that before the rest of the file. Keys are the
names of the options, such as `max_tokens`; a profile is a table `[profiles.NAME]` of them. All are checked
whenever the file is read, also those of other commands.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from pilotfish.errors import UsageError
from pilotfish.hub.found import read_small

_PREFIX = "PILOTFISH_"
_PROFILES = "profiles"
_MOST_BYTES = 1 << 20
_WITHOUT_VARIABLE = frozenset({"stop"})  # a list of texts with spaces
_META = "pilotfish.configured"
PROFILE = "pilotfish.profile"
"""Where a command's context keeps the name of its profile."""


def config_path() -> Path:
    """Return where the file is: `PILOTFISH_CONFIG`, else the platform's folder; it need not exist."""
    chosen = os.environ.get("PILOTFISH_CONFIG")
    if chosen:
        return Path(os.path.expanduser(chosen)).absolute()  # noqa: PTH111 - pathlib's raises on an unknown user
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "pilotfish" / "config.toml"
    xdg = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(xdg) if Path(xdg).is_absolute() else Path.home() / ".config") / "pilotfish" / "config.toml"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the file says, checked.

    Attributes
    ----------
    path
        The file.
    settings
        By key.
    profiles
        By name, each by key.
    """

    path: Path
    settings: Mapping[str, object]
    profiles: Mapping[str, Mapping[str, object]]

    @classmethod
    def read(cls, path: Path, options: Callable[[], Mapping[str, click.Option]]) -> Configuration:
        """Read the file; without one there are no settings.

        Parameters
        ----------
        path
            The file.
        options
            Gives what may be set, by key; not asked if the file sets nothing.

        Raises
        ------
        UsageError
            It can't be read or is no TOML; an unknown key, or a value of another type, which is named.
        """
        table = _table(path)
        tables = table.pop(_PROFILES, {})
        if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
            raise UsageError(
                f"{path}: {_PROFILES} holds no tables", f"write [{_PROFILES}.NAME] above its settings"
            )
        known = options() if table or any(tables.values()) else {}
        settings = _checked(f"{path}: ", table, known)
        profiles = {name: _checked(f"{path}: profile {name!r}: ", one, known) for name, one in tables.items()}
        return cls(path, settings, profiles)

    def defaults(self, profile: str | None) -> dict[str, tuple[object, str]]:
        """Return value and source by key, with or without a profile.

        Raises
        ------
        UsageError
            There is no such profile.
        """
        if profile is not None and profile not in self.profiles:
            known = ", ".join(self.profiles)
            raise UsageError(
                f"no profile is named {profile[:80]!r}",
                f"{self.path} has: {known}" if known else f"write [{_PROFILES}.NAME] in {self.path}",
            )
        found = {key: (value, "config file") for key, value in self.settings.items()}
        if profile is not None:
            found |= {key: (value, f"profile {profile}") for key, value in self.profiles[profile].items()}
        return found


def key_of(option: click.Parameter) -> str | None:
    """Return what an option is called in the file, None if it can't be set there."""
    if not isinstance(option, click.Option) or option.name == "profile":
        return None
    if option.name in _WITHOUT_VARIABLE:
        return option.name
    variable = option.envvar
    return variable.removeprefix(_PREFIX).lower() if isinstance(variable, str) else None


def with_profile(command: click.Command) -> click.Command:
    """Give a command, or those of a group, the option `--profile`, and with it the file's defaults."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            with_profile(inner)
    elif any(key_of(option) for option in command.params) and not any(
        option.name == "profile" for option in command.params
    ):
        command.params.append(
            click.Option(
                ["--profile"],
                metavar="NAME",
                envvar=f"{_PREFIX}PROFILE",
                expose_value=False,
                is_eager=True,
                callback=_configure,
                help="Take defaults from this profile of the configuration file.",
            )
        )
    return command


def settings_of(ctx: click.Context) -> dict[str, tuple[object, str]]:
    """Return the value and the source of each option of a command.

    Sources are `flag`, `environment`, `profile NAME`, `config file` and `default`.
    """
    configured = ctx.meta.get(_META, {})
    found = {}
    for option in ctx.command.params:
        key = key_of(option)
        if key is not None and option.name is not None:
            names = {
                click.core.ParameterSource.COMMANDLINE: "flag",
                click.core.ParameterSource.ENVIRONMENT: "environment",
                click.core.ParameterSource.DEFAULT_MAP: configured.get(key, ""),
            }
            source = ctx.get_parameter_source(option.name)
            found[key] = (ctx.params.get(option.name), names.get(source, "default") if source else "default")
    return found


def _configure(ctx: click.Context, _option: click.Parameter, profile: str | None) -> None:
    """Set the defaults of a command before its other options are read."""
    if ctx.resilient_parsing:
        return
    defaults = Configuration.read(config_path(), lambda: _known(ctx)).defaults(profile)
    ctx.meta[PROFILE] = profile
    ctx.meta[_META] = {key: source for key, (_, source) in defaults.items()}
    ctx.default_map = {
        str(option.name): defaults[key][0]
        for option in ctx.command.params
        if (key := key_of(option)) is not None and key in defaults
    }


def _known(ctx: click.Context) -> dict[str, click.Option]:
    """Return what may be set for any command, by key; the command's own options go first."""
    found: dict[str, click.Option] = {}
    for command in (ctx.command, *_commands(ctx.find_root().command, ctx)):
        for option in command.params:
            key = key_of(option)
            if key is not None and isinstance(option, click.Option):
                found.setdefault(key, option)
    return found


def _commands(command: click.Command, ctx: click.Context) -> Iterator[click.Command]:
    if not isinstance(command, click.Group):
        yield command
        return
    for name in command.list_commands(ctx):
        inner = command.get_command(ctx, name)
        if inner is not None:
            yield from _commands(inner, ctx)


def _table(path: Path) -> dict[str, object]:
    if str(path) == os.devnull:
        return {}
    if not os.path.exists(path):  # noqa: PTH110 - pathlib's raises where a folder may not be entered
        if os.environ.get("PILOTFISH_CONFIG"):
            raise UsageError(f"there is no file {path}", "unset PILOTFISH_CONFIG, or name another")
        return {}
    try:
        return tomllib.loads(read_small(path, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror or error}", "check the path") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML: {error}", "a line is like: threads = 4") from error


def _checked(
    where: str, table: Mapping[str, object], options: Mapping[str, click.Option]
) -> dict[str, object]:
    found: dict[str, object] = {}
    for written, value in table.items():
        key = written.replace("-", "_")
        if key not in options:
            near = difflib.get_close_matches(key[:80], options, n=1)
            guess = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"{where}unknown setting {written[:80]!r}", f"{guess}known: {', '.join(options)}"
            )
        if key in found:
            raise UsageError(f"{where}{key} is set twice", "write it once, with _ or with -")
        option = options[key]
        many = option.multiple and isinstance(value, list)
        values = list(value) if many and isinstance(value, list) else [value]
        fitting = [_fitting(option.type, one, flag=option.is_flag) for one in values]
        if any(one is None for one in fitting):
            raise UsageError(f"{where}{written} is {str(value)[:80]!r}", f"it is {_kind(option)}")
        found[key] = fitting if option.multiple else fitting[0]
    return found


def _fitting(kind: object, value: object, *, flag: bool) -> object | None:
    """Return a value as the option takes it, None if it is of another type."""
    if flag or isinstance(value, bool):
        return value if flag and isinstance(value, bool) else None
    if isinstance(kind, click.types.IntParamType):
        return value if isinstance(value, int) else None
    if isinstance(kind, click.types.FloatParamType):
        return value if isinstance(value, int | float) else None
    if isinstance(kind, click.Choice):
        return value if value in kind.choices else None
    return str(value) if isinstance(value, str | int) else None


def _kind(option: click.Option) -> str:
    if option.is_flag:
        return "true or false"
    if isinstance(option.type, click.Choice):
        return f"one of {', '.join(option.type.choices)}"
    one = {click.types.IntParamType: "a whole number", click.types.FloatParamType: "a number"}.get(
        type(option.type), "a text"
    )
    return f"{one}, or a list" if option.multiple else one
