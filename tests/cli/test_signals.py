"""Signals to processes: heard wherever the command is, without a traceback, and nothing is left half done."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.processes import SCRIPTED, catch
from hub.doubles import NAME, FakeHub

if TYPE_CHECKING:
    from collections.abc import Iterator

HEARD_S = 60
"""Longest wait for what takes well below a second on an idle machine."""

CTRL_C, TERM, HANG_UP = (130, signal.SIGINT), (143, signal.SIGTERM), (129, signal.SIGHUP)
ENGINE = "pilotfish.engines.native.engine:NativeEngine"


def ends(process: subprocess.Popen[str], how: tuple[int, signal.Signals]) -> str:
    """Send the signal and return stdout; the process ends with the code, and has nothing more to say."""
    code, number = how
    process.send_signal(number)
    out, err = process.communicate(timeout=HEARD_S)
    assert (process.returncode, err.strip()) == (code, "")
    return out


TOKENIZER, WEIGHTS = (
    "pilotfish.text.tokenizer:Tokenizer.from_metadata",
    "pilotfish.engines.native.builder:Builder._pack",
)


@pytest.mark.models
@pytest.mark.parametrize(
    ("place", "how"), [(TOKENIZER, CTRL_C), (WEIGHTS, CTRL_C), (WEIGHTS, TERM), (WEIGHTS, HANG_UP)]
)
def test_a_signal_while_loading(smollm2: Path, place: str, how: tuple[int, signal.Signals]) -> None:
    """While the tokenizer is built, and while weights are packed."""
    assert ends(catch(place, ["run", "-m", str(smollm2), "hello"], hold=True), how) == ""


@pytest.mark.models
def test_ctrl_c_while_a_long_prompt_is_read(smollm2: Path) -> None:
    process = catch(f"{ENGINE}.forward", ["run", "-m", str(smollm2), "--raw", "word " * 7000], count=2)
    assert ends(process, CTRL_C) == ""


@pytest.mark.models
def test_ctrl_c_while_the_draft_model_reads_a_long_text(smollm2: Path) -> None:
    args = ["-m", str(smollm2), "-d", str(smollm2), "--draft-length", "4", "--raw", "word " * 700]
    ends(catch("pilotfish.drafters.model:ModelDrafter._catch_up", ["run", *args]), CTRL_C)


@pytest.mark.models
@pytest.mark.parametrize(
    "command",
    [
        ["verify", "-d", "suffix", "--json"],
        ["demo", "-d", "suffix", "--json"],
        ["bench", "passes", "--json"],
        ["bench", "speed", "-d", "suffix", "--json"],
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_ctrl_c_while_something_is_compared_or_measured_prints_no_half_report(
    smollm2: Path, command: list[str]
) -> None:
    assert ends(catch(f"{ENGINE}.forward", [*command, "-m", str(smollm2)], count=4), CTRL_C) == ""


PULLED = bytes(range(256)) * 4096
"""A file of a megabyte, which comes in several pieces."""

REGISTER = f"""
from hub.doubles import entry_for
from pilotfish.hub import REGISTRY
REGISTRY[{NAME!r}] = entry_for(bytes(range(256)) * 4096, 1 << 20)
"""


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    hub = FakeHub(PULLED)
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setenv("no_proxy", "*")
    yield hub
    hub.close()


@pytest.mark.parametrize("how", [CTRL_C, TERM])
def test_a_pull_that_a_signal_ends_keeps_what_came_and_goes_on_from_there(
    fake_hub: FakeHub, empty_cache: Path, how: tuple[int, signal.Signals]
) -> None:
    pull = ["pull", NAME, "--source", "hub"]
    process = catch("pilotfish.hub.partial:Partial.append", pull, count=2, hold=True, setup=REGISTER)
    assert ends(process, how) == ""
    assert not (empty_cache / "tiny.gguf").exists()
    kept = (empty_cache / "tiny.gguf.part").stat().st_size
    assert 0 < kept < len(PULLED)
    again = subprocess.run(
        [sys.executable, "-c", f"{SETUP}{REGISTER}from pilotfish.__main__ import main; main()", *pull],
        check=True,
        capture_output=True,
        timeout=HEARD_S,
    )
    assert again.returncode == 0
    assert (empty_cache / "tiny.gguf").read_bytes() == PULLED
    assert fake_hub.requests[-1].first == kept


SETUP = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})"


class Terminal:
    """A process of `chat`, with the tiny model, on a terminal of its own."""

    def __init__(self, pause: str = "0") -> None:
        self._ours, theirs = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPTED, "chat", "-m", "x"],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.DEVNULL,  # the terminal would mix both streams
            env={**os.environ, "TERM": "dumb", "PASS_S": pause},
        )
        os.close(theirs)
        self._seen = b""

    def wait_for(self, text: bytes) -> None:
        """Read until the text appears, and through it."""
        while text not in self._seen:
            assert select.select([self._ours], [], [], HEARD_S)[0], f"{text!r} does not come: {self._seen!r}"
            self._seen += os.read(self._ours, 4096)
        self._seen = self._seen.partition(text)[2]

    def interrupt_at_the_prompt(self) -> None:
        """Send SIGINT once the process sleeps.

        One that comes between the prompt and that is looked at by Python only when the next key is typed.
        """
        stat = Path(f"/proc/{self.process.pid}/stat")
        if not stat.exists():
            pytest.skip("only Linux tells whether a process sleeps")
        while stat.read_text().rsplit(")", 1)[1].split()[0] != "S":
            os.sched_yield()
        self.process.send_signal(signal.SIGINT)

    def type(self, text: bytes) -> None:
        """Type a line."""
        os.write(self._ours, text)

    def ends(self) -> int:
        """Return the exit code."""
        code = self.process.wait(HEARD_S)
        os.close(self._ours)
        return code


def test_ctrl_c_in_chat_stops_the_answer_and_stays() -> None:
    chat = Terminal("0.05")
    chat.wait_for(b"> ")
    chat.type(b"abc\n")
    chat.wait_for(b"abc\r\n")  # what was typed
    chat.wait_for(b"nt\r\nnt")  # it says the end of its prompt, "assistant", again and again
    chat.process.send_signal(signal.SIGINT)
    chat.wait_for(b"> ")
    chat.type(b"/exit\n")
    assert chat.ends() == 0


def test_ctrl_c_twice_at_the_prompt_of_chat_leaves() -> None:
    """Once drops the line."""
    chat = Terminal()
    chat.wait_for(b"> ")
    chat.interrupt_at_the_prompt()
    chat.wait_for(b"> ")
    chat.interrupt_at_the_prompt()
    assert chat.ends() == 130


def test_a_signal_that_the_parent_ignores_is_ignored() -> None:
    """As for `nohup`, and for what a shell's script starts in the background."""
    script = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from pilotfish import signals\n"
        "signals.handle()\n"
        "signal.raise_signal(signal.SIGINT)\n"
        "print('still here', flush=True)\n"
        "signal.raise_signal(signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (143, "still here\n", "")
