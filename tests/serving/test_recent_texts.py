"""Requests that have ended help later ones of the same client: drafts, never the text."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding import plain
from pilotfish.drafters import recent as recent_module
from pilotfish.drafters.lookup import Lookup
from pilotfish.drafters.recent import RecentDrafter, RecentTexts
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines.scripted import Rule, ngrams
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from pilotfish.serving.scheduler import Scheduler
from serving.loads import Arrival, Load, arrivals, service
from strategies import VOCAB, Request, rules

LANGUAGE = ngrams(VOCAB, 8, seed=3)
"""It does not repeat itself within an answer."""


def remembering(rule: Rule, most_tokens: int = 1000, **limits: int) -> Scheduler:
    recent = RecentTexts(most_tokens)
    drafter = Lookup([SuffixDrafter(), RecentDrafter(recent)])
    return service(rule, drafter, recent=recent, **limits)


@given(rules, arrivals, st.sampled_from([10, 50, 1000]), st.integers(1, 3))
@settings(max_examples=60)
def test_what_is_remembered_of_others_changes_no_answer(
    rule: Rule, batch: list[Arrival], most_tokens: int, most_running: int
) -> None:
    load = Load(remembering(rule, most_tokens, most_running=most_running))
    for arrival in batch * 2:
        for _ in range(arrival.after):
            load.step()
        load.submit(arrival.request, salt=arrival.salt)
    load.finish()
    for arrival, ticket in zip(batch * 2, load.tickets, strict=True):
        assert (load.told(ticket), ticket.choices[0].finish_reason) == plain(rule, arrival.request)


def passes_and_drafters(salts: list[str]) -> list[tuple[int, set[str | None]]]:
    """Ask the same with these salts, one after the other."""
    load, made = Load(remembering(LANGUAGE)), []
    for salt in salts:
        ticket = load.submit(Request((1, 2, 3, 4, 5), max_tokens=41), salt=salt)
        load.finish()
        drafters = {token.drafted_by for token in load.heard[id(ticket)]}
        made.append((ticket.choices[0].stats.passes, drafters - {None, "suffix"}))
    return made


def test_the_same_question_is_answered_in_fewer_passes_and_only_with_the_same_salt() -> None:
    first, other, again = passes_and_drafters(["a", "b", "a"])
    assert first == other
    assert first[1] == set()
    assert again[0] <= 8
    assert again[1] == {"recent"}


LONG = Request(tuple(random.Random(2).choices(range(VOCAB), k=200)), max_tokens=1)  # noqa: S311 - no secret


def test_while_nobody_asks_all_of_a_long_text_becomes_findable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though only a part of it is made findable with each pass."""
    monkeypatch.setattr(recent_module, "PART", 10)
    load = Load(remembering(LANGUAGE))
    recent, ticket = load.scheduler.recent, load.submit(LONG)
    assert recent is not None
    while not ticket.done:
        load.step()
    assert recent.find("", LONG.prompt[-9:-1], 1) == (8, [[LONG.prompt[-1]]])
    assert not recent.advance()


def test_whoever_comes_meanwhile_does_not_wait_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_module, "PART", 10)
    load = Load(remembering(LANGUAGE))
    recent, ticket = load.scheduler.recent, load.submit(LONG)
    assert recent is not None
    advance = recent.advance

    def come() -> bool:
        if ticket.done and len(load.tickets) == 1:
            load.submit(LONG)
        return advance()

    monkeypatch.setattr(recent, "advance", come)
    while not ticket.done:
        load.step()
    assert load.scheduler.waiting == 1
    assert advance()
    load.finish()


def test_examinations_are_not_remembered_and_closing_forgets_all() -> None:
    scheduler = remembering(LANGUAGE)
    recent = scheduler.recent
    assert recent is not None
    load = Load(scheduler)
    load.watch(scheduler.submit(Sequence([1, 2, 3] * 5, Sampling(), 1, logprobs=0, scores_prompt=True)))
    load.finish()
    assert recent.tokens == 0
    load.submit(Request((1, 2, 3) * 5, max_tokens=3))
    load.finish()
    assert recent.tokens == 18
    scheduler.close()
    assert recent.tokens == 0
