"""What only a process of its own can show: pipes, signals, start-up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.processes import RUN, SCRIPTED, start


def test_a_reader_that_leaves_early_is_not_an_error() -> None:
    """As in `pilotfish run ... | head`."""
    process = start(RUN)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(7) == "abcabca"
    process.stdout.close()
    noise = {line for line in process.stderr.read().splitlines() if line != "pass"}
    assert (process.wait(30), noise) == (0, set())
    process.stderr.close()


@pytest.mark.parametrize("passes", [1, 4], ids=["prefill", "stream"])
@pytest.mark.parametrize("extra", [(), ("--json",)], ids=["text", "json"])
def test_ctrl_c_ends_with_130_and_nothing_half_written(passes: int, extra: tuple[str, ...]) -> None:
    process = start((*RUN, *extra), PASS_S="0.2")  # noqa: S106 - seconds of a pass
    assert process.stderr is not None
    for _ in range(passes):
        assert process.stderr.readline() == "pass\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert {line for line in err.splitlines() if line} <= {"pass"}
    assert out == "" if extra or passes == 1 else "abcabc".startswith(out)


def test_help_and_version_import_nothing_large() -> None:
    """They answer at once because a command is imported only when it is called."""
    large = "{'numpy', 'rich', 'jinja2', 'tokenizers', 'huggingface_hub', 'pilotfish.llm'}"
    code = (
        "import sys\nfrom pilotfish.cli import cli\n"
        "try:\n    cli.main([sys.argv[1]])\n"
        f"finally:\n    print(sorted({large} & set(sys.modules)), file=sys.stderr)"
    )
    for argument in ("--version", "--help"):
        done = subprocess.run(
            [sys.executable, "-c", code, argument], check=True, capture_output=True, text=True, timeout=60
        )
        assert "pilotfish" in done.stdout
        assert done.stderr == "[]\n"


@pytest.mark.models
def test_a_real_model_answers_in_a_pipe(smollm2: Path) -> None:
    process = start(["run", "-m", str(smollm2), "Count to 50.", "--max-tokens", "200"], scripted=False)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(4)
    process.stdout.close()
    assert (process.stderr.read(), process.wait(60)) == ("", 0)
    process.stderr.close()


@pytest.mark.models
@pytest.mark.parametrize("early", [True, False], ids=["prefill", "stream"])
def test_ctrl_c_with_a_real_model_ends_with_130(smollm2: Path, early: bool) -> None:
    prompt = "word " * 4000 if early else "Count to 500."
    args = ["run", "-m", str(smollm2), prompt, "--max-tokens", "2000"]
    process = start(args, scripted=False)
    assert process.stdout is not None
    if early:
        _wait_until_busy(process.pid)
    else:
        assert process.stdout.read(4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, "")


def _wait_until_busy(pid: int) -> None:
    """Wait until the process has used 5 s of processor time, on Linux; long past start-up and loading."""
    stat, tick = Path(f"/proc/{pid}/stat"), os.sysconf("SC_CLK_TCK")
    if not stat.exists():
        pytest.skip("only Linux tells how busy a process is")
    while sum(map(int, stat.read_text().rsplit(")", 1)[1].split()[11:13])) < 5 * tick:
        time.sleep(0.05)


def test_a_full_disk_is_one_clear_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pilotfish", "models"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    error = "pilotfish: error: can't write the output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, error)


@pytest.mark.parametrize("args", [["--help"], ["models"], ["models", "--json"]])
def test_a_reader_that_left_before_the_first_line_is_not_an_error(args: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "pilotfish", *args]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_stream_that_the_caller_closed_is_not_an_error(closed: str) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", SCRIPTED, *RUN[:-1], "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, set(done.stderr.splitlines()) - {"pass"}) == (0, set())
    assert done.stdout == ("" if ">&-" in closed.split() else "abc\n")
