"""At a fixed length nothing is left out because it would not pay."""

from __future__ import annotations

from pilotfish.drafters.either import Either
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines.scripted import ngrams
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from strategies import VOCAB, draft_model


def view(tokens: list[int]) -> Sequence:
    return Sequence(list(tokens), Sampling(), 100)


def test_a_sure_guess_that_was_looked_up_costs_no_pass_of_the_model() -> None:
    model = draft_model(ngrams(VOCAB, 1, 99))
    text = view([1, 2, 3, 4, 5] * 6)
    (draft,) = Either(SuffixDrafter(), model).propose([text], [4])
    assert draft.tokens == (1, 2, 3, 4)
    assert set(draft.drafters) == {"suffix"}
    assert model.passes == []


def test_the_model_drafts_where_nothing_like_the_end_has_occurred() -> None:
    model = draft_model(ngrams(VOCAB, 1, 99))
    text = view([1, 2, 4, 5, 6, 7])
    (draft,) = Either(SuffixDrafter(), model).propose([text], [4])
    assert len(draft.tokens) == 4
    assert set(draft.drafters) == {"model"}


def test_without_a_model_an_unsure_guess_is_drafted_all_the_same() -> None:
    text = view([1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 5, 9, 1, 2])
    (draft,) = Either(SuffixDrafter()).propose([text], [2])
    assert draft.tokens
    assert draft.confidence[0] < 0.5
