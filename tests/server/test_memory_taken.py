"""A server's memory: what it takes under load is there when it starts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from pilotfish.llm import load
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from pilotfish.server.service import Service
from pilotfish.server.settings import Settings

MOST_GROWTH = 0.02
"""Of all that the process holds: requests themselves, texts to draft from, what is only used now and then."""


def anonymous() -> int:
    """Return the bytes that this process holds for itself, files that it maps not counted."""
    found = re.search(r"^Anonymous:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.models
@pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is read from /proc")
def test_the_largest_passes_of_a_server_take_no_more_memory_than_its_start(smollm2: Path) -> None:
    """Sixteen at once, with long drafts, and prompts that are read beside them.

    A library's model takes none before it is asked.
    """
    settings = Settings(prefix_tokens=2048)
    with load(str(smollm2), draft="suffix", threads=2) as llm:
        loaded = anonymous()
        with Service(llm.target, llm.drafting, settings, draft_length=8, run=False) as service:
            scheduler, engine = service.scheduler, llm.target.engine
            started = anonymous()
            kv = engine.reserved_tokens * engine.kv_bytes_per_token  # type: ignore[attr-defined]
            assert started - loaded > 0.95 * kv > 100e6
            work = engine.work_bytes  # type: ignore[attr-defined]
            words = llm.encode(" one two three four five six seven")
            for i in range(20):
                prompt = [100 + i, *(words * 20)[: 40 + 3 * i]]
                scheduler.submit(Sequence(prompt, Sampling(), max_tokens=12))
            most = 0
            while scheduler.step():
                most = max(most, service.scheduler.running)
            assert most == settings.most_running
            assert engine.work_bytes == work  # type: ignore[attr-defined]
            assert anonymous() - started <= MOST_GROWTH * started
