#!/usr/bin/env python3
"""Find what pilotfish is built with, or say in one line how to install what is missing.

Written for the standard library of any Python from 3.6 on (the one that starts this need not be the one that
pilotfish will use), so newer syntax and newer arguments are avoided on purpose.
"""

# ruff: noqa: S603, T201, UP006, UP021, UP035, UP045

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

OLDEST = (3, 11)
# Newest first, but for versions so new that libraries may lack ready-made packages for them.
NAMES = ("python3", "python3.13", "python3.12", "python3.11", "python3.14")
COMPILERS = (("c++",), ("g++",), ("clang++",))
GB = 10**9
FOLDER_BYTES = 3 * GB // 2  # .venv and build
CACHE_BYTES = 5 * GB // 2  # the models, and room for the part of a file that is on its way
MEMORY_BYTES = 4 * GB

# Prints: implementation, major, minor, has Python.h, has venv, the interpreter behind a virtual environment.
PROBE = """
import os, sys, sysconfig
header = os.path.isfile(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
try:
    import venv, ensurepip
    has_venv = True
except ImportError:
    has_venv = False
base = getattr(sys, "_base_executable", None) or sys.executable
print(sys.implementation.name, sys.version_info[0], sys.version_info[1], int(header), int(has_venv), base)
"""

PROGRAM = """
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
inline constexpr std::string_view name = "pilotfish";
template <typename T> int size(std::optional<T> value) {
  if constexpr (sizeof(T) > 1) { return static_cast<int>(value->size()); } else { return 1; }
}
int main() {
  auto [first, second] = std::pair{size(std::optional{name}), 9};
  return first - second;
}
"""


class Machine(NamedTuple):
    """Everything that is asked of the machine, so that tests can make one up."""

    path: str  # as in PATH
    python: str  # the interpreter that runs this
    system: str  # as platform.system() says
    root: bool
    apt_lists: bool  # whether apt knows its packages yet
    compiler: Optional[str]  # as in CXX
    folder: Path
    cache: Path
    disk: Callable[[Path], Tuple[int, int]]  # folder -> (device, free bytes)
    memory: int  # bytes, 0 if unknown


class Python(NamedTuple):
    """One interpreter on this machine."""

    name: str  # as it was found
    executable: str
    version: Tuple[int, int]
    headers: bool
    venv: bool


class Report(NamedTuple):
    """What was found, and what is missing."""

    python: Optional[Python]
    compiler: Optional[List[str]]
    missing: List[str]
    line: str  # what to type; empty if nothing that is missing comes in a package
    warnings: List[str]


def here() -> Machine:
    """Return the machine this runs on."""
    system = platform.system()
    return Machine(
        path=os.environ.get("PATH", os.defpath),
        python=sys.executable,
        system=system,
        root=hasattr(os, "geteuid") and os.geteuid() == 0,
        apt_lists=any(Path("/var/lib/apt/lists").glob("*_Packages*")),
        compiler=os.environ.get("CXX") or None,
        folder=Path(__file__).resolve().parent.parent,
        cache=_cache(system),
        disk=_disk,
        memory=_memory(),
    )


def _cache(system: str) -> Path:
    # The same folder as pilotfish.hub's.
    if os.environ.get("PILOTFISH_CACHE"):
        return Path(os.environ["PILOTFISH_CACHE"]).expanduser().absolute()
    if system == "Darwin":
        return Path.home() / "Library" / "Caches" / "pilotfish"
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "pilotfish"


def _disk(folder: Path) -> Tuple[int, int]:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    return existing.stat().st_dev, shutil.disk_usage(str(existing)).free


def _memory() -> int:
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
    try:
        return min(physical, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or one whose limit is "max"
        return physical


def _run(command: Sequence[str]) -> Optional[str]:
    """Return what a command prints, or None if it can't be started, fails, or takes a minute."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout


def _everywhere(names: Sequence[str], path: str) -> List[str]:
    """Return every executable of these names, all those of the first name first."""
    folders = [folder for folder in path.split(os.pathsep) if folder]
    places = [shutil.which(name, path=folder) for name in names for folder in folders]
    return [place for place in places if place]


def find_pythons(machine: Machine) -> List[Python]:
    """Return the usable interpreters: the running one first, then those on PATH, then one that uv keeps."""
    places = [machine.python, *_everywhere(NAMES, machine.path)]
    uv = shutil.which("uv", path=machine.path)
    if uv:
        places.append((_run([uv, "python", "find", ">=3.11"]) or "").strip())
    found = []
    for place in dict.fromkeys(places):
        words = (_run([place, "-c", PROBE]) or "").strip().split(" ", 5) if place else []
        if len(words) == 6 and words[0] == "cpython":
            version = (int(words[1]), int(words[2]))
            name = Path(place).name
            found.append(Python(name, words[5], version, words[3] == "1", words[4] == "1"))
    return [python for python in found if python.version >= OLDEST]


def find_compiler(machine: Machine) -> Tuple[Optional[List[str]], List[str]]:
    """Return the first compiler that builds a small C++17 program, and the names of those that can't."""
    commands = [shlex.split(machine.compiler)] if machine.compiler else [list(name) for name in COMPILERS]
    failed = []  # type: List[str]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text(PROGRAM, encoding="ascii")
        for command in commands:
            place = shutil.which(command[0], path=machine.path)
            if not place:
                continue
            full = [place, *command[1:]]
            output = str(Path(folder) / "probe")
            if _run([*full, "-std=c++17", str(source), "-o", output]) is not None:
                return full, failed
            failed.append(" ".join(command))
    return None, failed


def _package_line(machine: Machine, needs: Sequence[str], python: Optional[Python]) -> str:
    """Return the command that installs the needs: compiler, python, headers, venv."""
    manager = next((name for name in ("apt-get", "dnf", "brew") if shutil.which(name, path=machine.path)), "")
    # "python3" stands for the system's own; another version's packages carry its number.
    own = python.name if python and python.name.startswith("python3.") else "python3"
    packages = {
        "apt-get": {
            "compiler": ["g++"],
            "python": ["python3.11", "python3.11-dev", "python3.11-venv"],
            "headers": [own + "-dev"],
            "venv": [own + "-venv"],
        },
        "dnf": {
            "compiler": ["gcc-c++"],
            "python": ["python3.12", "python3.12-devel"],
            "headers": [own + "-devel"],
            "venv": [own + "-libs"],
        },
        "brew": {
            "compiler": ["gcc"],
            "python": ["python@3.13"],
            "headers": ["python@3.13"],
            "venv": ["python@3.13"],
        },
    }
    steps = []
    if machine.system == "Darwin" and "compiler" in needs:
        steps.append("xcode-select --install")
        needs = [need for need in needs if need != "compiler"]
    sudo = "" if machine.root or manager == "brew" else "sudo "
    wanted = list(dict.fromkeys(name for need in needs for name in packages.get(manager, {}).get(need, [])))
    if wanted and manager == "apt-get" and not machine.apt_lists:
        steps.append(sudo + "apt-get update")
    if wanted:
        yes = "" if manager == "brew" else " -y"
        steps.append(f"{sudo}{manager} install{yes} " + " ".join(wanted))
    return " && ".join(steps)


def _disk_trouble(machine: Machine) -> List[str]:
    have = sum(file.stat().st_size for file in machine.cache.glob("**/*") if file.is_file())
    needs = [(machine.folder, FOLDER_BYTES), (machine.cache, max(CACHE_BYTES - have, 0))]
    device, free = machine.disk(machine.folder)
    if machine.disk(machine.cache)[0] == device:
        needs = [(machine.folder, needs[0][1] + needs[1][1])]
    trouble = []
    for folder, need in needs:
        free = machine.disk(folder)[1]
        if free < need:
            text = f"{need / GB:.1f} GB of disk where {folder} is, {free / GB:.1f} GB are free"
            trouble.append(text + ": free some, or let PILOTFISH_CACHE name a folder on another disk")
    return trouble


def check(machine: Machine) -> Report:
    """Look for everything; nothing is changed on the machine."""
    if machine.system == "Windows" or machine.system.startswith(("CYGWIN", "MSYS", "MINGW")):
        text = "Windows itself is not supported: use WSL (`wsl --install`) and start again in its Linux shell"
        return Report(None, None, [text], "", [])
    missing, needs = [], []
    compiler, failed = find_compiler(machine)
    if compiler is None and machine.compiler:
        why = f"CXX is {machine.compiler!r}, which builds no C++17: unset it or name another"
        missing.append(f"a C++17 compiler ({why})")
    elif compiler is None:
        needs.append("compiler")
        tried = ", ".join(name for (name,) in COMPILERS)
        reason = ", ".join(failed) + " can't build C++17" if failed else "no " + tried
        missing.append(f"a C++17 compiler ({reason})")
    pythons = find_pythons(machine)
    # The first that lacks nothing; else the first, so that the fewest surprises are installed.
    complete = [found for found in pythons if found.headers and found.venv]
    python = next(iter(complete + pythons), None)
    if python is None:
        needs.append("python")
        missing.append("Python 3.11 or newer (`uv python install 3.12` serves too, where uv is installed)")
    else:
        version = "Python {}.{}".format(*python.version)
        if not python.headers:
            needs.append("headers")
            missing.append(f"the headers of {version} (Python.h)")
        if not python.venv:
            needs.append("venv")
            missing.append(f"the modules venv and ensurepip of {version}")
    missing += _disk_trouble(machine)
    warnings = []
    if 0 < machine.memory < MEMORY_BYTES:
        have = f"{machine.memory / GB:.1f} GB of memory"
        warnings.append(have + "; the demo's models want 4 GB, smollm2-135m fits")
    return Report(python, compiler, missing, _package_line(machine, needs, python), warnings)


def main(arguments: Optional[Sequence[str]] = None, machine: Optional[Machine] = None) -> int:
    """Print the Python to use and return 0, or print what is missing and return 1."""
    parser = argparse.ArgumentParser(description="Find what pilotfish is built with.")
    parser.add_argument("--write", metavar="FILE", help="write PYTHON=… and CXX=… there, for sh to read")
    options = parser.parse_args(arguments)
    report = check(machine or here())
    for text in report.warnings:
        print("warning: " + text, file=sys.stderr)
    if report.missing or report.python is None or report.compiler is None:
        print("pilotfish can't be set up yet. Missing:", file=sys.stderr)
        for text in report.missing:
            print("  - " + text, file=sys.stderr)
        if report.line:
            print("Type this, then try again:", file=sys.stderr)
            print("  " + report.line, file=sys.stderr)
        return 1
    if options.write:
        compiler = " ".join(shlex.quote(word) for word in report.compiler)
        text = f"PYTHON={shlex.quote(report.python.executable)}\nCXX={shlex.quote(compiler)}\n"
        Path(options.write).write_text(text, encoding="utf-8")
    print(report.python.executable)
    return 0


if __name__ == "__main__":
    sys.exit(main())
