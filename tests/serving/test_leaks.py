"""A scheduler that ends says so if pages of the KV cache are left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decoding import scripted
from pilotfish.engines.base import Chunk
from pilotfish.engines.scripted import ngrams
from serving.loads import Load, service
from strategies import VOCAB, Request

if TYPE_CHECKING:
    import pytest


def test_pages_that_are_held_at_the_end_are_told(caplog: pytest.LogCaptureFixture) -> None:
    for leaks in (0, 1):
        load = Load(service(ngrams(VOCAB, 2), kept=64))
        engine = scripted(load.decoder)
        load.submit(Request((1, 2, 3), max_tokens=20))
        load.scheduler.step()
        for _ in range(leaks):
            engine.forward([Chunk(engine.open(), [1], 0)])
        load.scheduler.close()
        assert caplog.text.count("1 pages of the KV cache are still held") == leaks
