"""A server hears a signal, whichever thread the kernel gives it to."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import signal
import threading

from pilotfish.server.listening import Address, Listening

async def app(scope, receive, send):
    pass

class Heard(Exception):
    pass

def hear(number, frame):
    raise Heard

signal.signal(signal.SIGTERM, hear)

def elsewhere():
    waits.wait()
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    threading.Event().wait()

waits = threading.Event()
threading.Thread(target=elsewhere, daemon=True).start()
with Listening(app, Address("127.0.0.1", 0)) as listening:
    try:
        threading.Timer(0.1, waits.set).start()
        listening.wait()
    except Heard:
        print("heard")
"""


def test_a_signal_that_another_thread_has_taken_is_heard() -> None:
    """Python's handlers run in the main thread, which nothing wakes then."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "heard\n"
