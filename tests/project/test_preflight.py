"""The preflight, on machines made of stub executables."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "preflight.py"
APT_COMPLETE = "apt-get install -y g++ python3-dev python3-venv"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("preflight", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


preflight = _load()


class _Box:
    """A machine whose PATH is one folder of stubs, at first with all that is needed."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.machine = preflight.Machine(
            path=str(self.bin),
            python=str(self.bin / "python3"),
            system="Linux",
            root=False,
            apt_lists=True,
            compiler=None,
            folder=folder,
            cache=folder / "cache",
            disk=lambda _: (1, 4_000_000_000),
            memory=8_000_000_000,
        )
        self.python("python3", (3, 11))
        self.stub("c++", "exit 0")

    def stub(self, name: str, script: str) -> None:
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def python(self, name: str, version: tuple[int, int], *, headers: bool = True, venv: bool = True) -> None:
        words = ("cpython", *version, int(headers), int(venv), f"/opt/{name}")
        self.stub(name, "echo " + " ".join(str(word) for word in words))

    def remove(self, name: str) -> None:
        (self.bin / name).unlink()

    def change(self, **fields: object) -> None:
        self.machine = self.machine._replace(**fields)

    def check(self) -> Any:
        return preflight.check(self.machine)


@pytest.fixture
def box(tmp_path: Path) -> _Box:
    return _Box(tmp_path)


@pytest.fixture
def apt(box: _Box) -> _Box:
    box.stub("apt-get", "exit 1")
    return box


def test_a_machine_with_everything_gets_the_path_of_its_python(
    box: _Box, capsys: pytest.CaptureFixture[str]
) -> None:
    assert preflight.main([], box.machine) == 0
    assert capsys.readouterr().out == "/opt/python3\n"


def test_what_was_found_is_written_for_a_shell(box: _Box, tmp_path: Path) -> None:
    box.stub("my c++", "exit 0")
    box.change(compiler="'my c++' -m64")
    file = tmp_path / "found"
    assert preflight.main(["--write", str(file)], box.machine) == 0
    shell = ["/bin/sh", "-c", '. "$0"; echo "$PYTHON"; eval "set -- $CXX"; echo "$1"; echo "$2"', str(file)]
    done = subprocess.run(shell, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["/opt/python3", str(box.bin / "my c++"), "-m64"]


def test_without_a_compiler_one_is_named(apt: _Box, capsys: pytest.CaptureFixture[str]) -> None:
    apt.remove("c++")
    assert preflight.main([], apt.machine) == 1
    answer = capsys.readouterr()
    assert answer.out == ""
    assert "a C++17 compiler (no c++, g++, clang++)" in answer.err
    assert answer.err.splitlines()[-1] == "  sudo apt-get install -y g++"


def test_a_compiler_that_is_too_old_does_not_count(apt: _Box) -> None:
    apt.stub("c++", "exit 1")
    report = apt.check()
    assert report.missing == ["a C++17 compiler (c++ can't build C++17)"]
    assert report.line == "sudo apt-get install -y g++"


def test_a_second_compiler_is_used_when_the_first_is_too_old(box: _Box) -> None:
    box.stub("c++", "exit 1")
    box.stub("clang++", "exit 0")
    report = box.check()
    assert report.missing == []
    assert report.compiler == [str(box.bin / "clang++")]


def test_a_compiler_that_was_chosen_and_fails_is_not_replaced_silently(apt: _Box) -> None:
    apt.change(compiler="icpc")
    report = apt.check()
    assert report.missing == [
        "a C++17 compiler (CXX is 'icpc', which builds no C++17: unset it or name another)"
    ]
    assert report.line == ""


def test_without_a_new_enough_python_one_is_named(apt: _Box) -> None:
    apt.python("python3", (3, 9))
    report = apt.check()
    assert len(report.missing) == 1
    assert report.missing[0].startswith("Python 3.11 or newer")
    assert report.line == "sudo apt-get install -y python3.11 python3.11-dev python3.11-venv"


def test_another_python_on_the_path_is_found_by_an_old_one(box: _Box) -> None:
    box.python("python3", (3, 9))
    box.python("python3.13", (3, 13))
    report = box.check()
    assert report.missing == []
    assert report.python.executable == "/opt/python3.13"


def test_a_python_that_uv_keeps_is_found(box: _Box) -> None:
    box.python("python3", (3, 9))
    box.python("kept", (3, 12))
    box.stub("uv", f"echo {box.bin / 'kept'}")
    assert box.check().python.executable == "/opt/kept"


def test_a_complete_python_is_preferred_to_one_that_lacks_headers(box: _Box) -> None:
    box.python("python3", (3, 12), headers=False)
    box.python("python3.11", (3, 11))
    report = box.check()
    assert report.missing == []
    assert report.python.executable == "/opt/python3.11"


def test_another_implementation_or_a_broken_python_does_not_count(box: _Box) -> None:
    box.stub("python3", "echo pypy 3 11 1 1 /opt/pypy3")
    box.stub("python3.12", "echo not a version; exit 0")
    box.stub("python3.13", "exit 127")
    assert box.check().python is None


def test_missing_headers_are_named(apt: _Box) -> None:
    apt.python("python3", (3, 11), headers=False)
    report = apt.check()
    assert report.missing == ["the headers of Python 3.11 (Python.h)"]
    assert report.line == "sudo apt-get install -y python3-dev"


def test_missing_headers_of_a_numbered_python_are_that_numbers(apt: _Box) -> None:
    apt.python("python3", (3, 10))
    apt.python("python3.12", (3, 12), headers=False)
    assert apt.check().line == "sudo apt-get install -y python3.12-dev"


def test_a_missing_venv_is_named(apt: _Box) -> None:
    apt.python("python3", (3, 11), venv=False)
    report = apt.check()
    assert report.missing == ["the modules venv and ensurepip of Python 3.11"]
    assert report.line == "sudo apt-get install -y python3-venv"


@pytest.mark.parametrize(
    ("manager", "line"),
    [
        ("apt-get", "sudo " + APT_COMPLETE),
        ("dnf", "sudo dnf install -y gcc-c++ python3-devel python3-libs"),
        ("brew", "brew install gcc python@3.13"),
        ("pacman", ""),
    ],
)
def test_the_line_is_that_of_the_package_manager(box: _Box, manager: str, line: str) -> None:
    box.remove("c++")
    box.python("python3", (3, 11), headers=False, venv=False)
    box.stub(manager, "exit 1")
    report = box.check()
    assert len(report.missing) == 3
    assert report.line == line


@pytest.mark.parametrize(
    ("manager", "line"),
    [
        ("dnf", "sudo dnf install -y python3.12 python3.12-devel"),
        ("brew", "brew install python@3.13"),
    ],
)
def test_the_python_is_that_of_the_package_manager(box: _Box, manager: str, line: str) -> None:
    box.python("python3", (3, 9))
    box.stub(manager, "exit 1")
    assert box.check().line == line


def test_root_needs_no_sudo(apt: _Box) -> None:
    apt.remove("c++")
    apt.python("python3", (3, 11), headers=False, venv=False)
    apt.change(root=True)
    assert apt.check().line == APT_COMPLETE


def test_a_fresh_container_reads_the_package_lists_first(apt: _Box) -> None:
    apt.remove("c++")
    apt.change(root=True, apt_lists=False)
    assert apt.check().line == "apt-get update && apt-get install -y g++"


def test_macos_takes_its_compiler_from_xcode(box: _Box) -> None:
    box.stub("c++", "exit 1")
    box.python("python3", (3, 9))
    box.stub("brew", "exit 1")
    box.change(system="Darwin")
    assert box.check().line == "xcode-select --install && brew install python@3.13"


def test_windows_is_sent_to_wsl(box: _Box) -> None:
    box.change(system="Windows")
    report = box.check()
    assert "WSL" in report.missing[0]
    assert report.line == ""


def test_too_small_a_disk_is_refused(box: _Box) -> None:
    box.change(disk=lambda _: (1, 3_900_000_000))
    report = box.check()
    need = f"4.0 GB of disk where {box.machine.folder} is, 3.9 GB are free"
    assert report.missing == [need + ": free some, or let PILOTFISH_CACHE name a folder on another disk"]
    assert report.line == ""


def test_two_disks_share_the_need(box: _Box) -> None:
    cache = box.machine.cache

    def free(folder: Path) -> tuple[int, int]:
        return (2, 2_400_000_000) if folder == cache else (1, 1_500_000_000)

    box.change(disk=free)
    report = box.check()
    assert len(report.missing) == 1
    assert report.missing[0].startswith(f"2.5 GB of disk where {cache} is, 2.4 GB are free")


def test_models_that_are_there_need_no_room(box: _Box) -> None:
    box.machine.cache.mkdir()
    with (box.machine.cache / "model.gguf").open("wb") as file:
        file.truncate(2_000_000_000)  # sparse
    box.change(disk=lambda _: (1, 2_000_000_000))
    assert box.check().missing == []


def test_little_memory_is_a_warning_only(box: _Box, capsys: pytest.CaptureFixture[str]) -> None:
    box.change(memory=2_000_000_000)
    assert preflight.main([], box.machine) == 0
    assert "2.0 GB of memory" in capsys.readouterr().err


def test_the_cache_is_where_pilotfish_keeps_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    from pilotfish.hub.cache import cache_dir

    for value in ("", "relative", "/somewhere/else"):
        monkeypatch.delenv("PILOTFISH_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert preflight.here().cache == cache_dir()
        monkeypatch.setenv("PILOTFISH_CACHE", value)
        assert preflight.here().cache == cache_dir()


def test_this_machine_can_build_pilotfish() -> None:
    """The probes are real ones: whoever runs the tests has built the kernels."""
    machine = preflight.here()._replace(disk=lambda _: (1, 4_000_000_000))
    report = preflight.check(machine)
    assert report.missing == []
    done = subprocess.run(
        [report.python.executable, "-c", "import sys; print(sys.version_info >= (3, 11))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"


def test_the_script_starts_under_an_old_python() -> None:
    """Old grammar only, as far back as `ast` still knows; and no module outside the standard library."""
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 7))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.module != "__future__"  # Python 3.6 has no `annotations` there
            assert node.module in sys.stdlib_module_names
        if isinstance(node, ast.Import):
            assert {name.name for name in node.names} <= sys.stdlib_module_names
