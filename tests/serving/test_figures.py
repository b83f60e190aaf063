"""Figures count what was asked and what was spared."""

from __future__ import annotations

from decoding import scripted
from pilotfish.engines.scripted import ngrams
from serving.loads import Load, service
from strategies import VOCAB, Request

LANGUAGE = ngrams(VOCAB, 2, seed=3)


def test_figures_say_what_runs_and_waits_and_what_was_reused_of_the_prompts() -> None:
    load = Load(service(LANGUAGE, kept=400, most_running=2))
    for _ in range(3):
        load.submit(Request((1,) * 50, max_tokens=2))
    load.step()
    figures = load.scheduler.figures()
    assert (figures.running, figures.waiting, figures.passes) == (2, 1, 1)
    while load.step():
        pass
    figures = load.scheduler.figures()
    assert (figures.running, figures.waiting, figures.preemptions) == (0, 0, 0)
    assert figures.prompt_tokens == 150
    assert figures.reused_tokens == 49 + 48
    assert scripted(load.decoder).tokens == 150 - figures.reused_tokens + 3
    assert (figures.kept_tokens, figures.most_kept_tokens) == (48, 400)
    assert (figures.pages, figures.most_pages) == (1, None)


def test_figures_count_those_that_lost_their_cache() -> None:
    load = Load(service(LANGUAGE))
    scripted(load.decoder).room = 100
    for n in (1, 2):
        load.submit(Request((n,) * 30, max_tokens=30))
    load.finish()
    assert load.scheduler.figures().preemptions == 1
