"""From checked options to what the algorithm takes: a sequence and its voice for each choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pilotfish.answer import Choice, Voice
from pilotfish.bans import Ban, BannedSequences
from pilotfish.errors import UsageError
from pilotfish.sequence import Sequence as TokenSequence
from pilotfish.text.banned import BannedStrings, Word

if TYPE_CHECKING:
    from pilotfish.options import Options
    from pilotfish.text.tokenizer import Tokenizer


def choices_of(tokenizer: Tokenizer, tokens: Sequence[int], options: Options) -> list[Choice]:
    """Return the choices of an answer to ids, nothing of which has been computed yet.

    Raises
    ------
    UsageError
        An option names an id that is no token, or bans all tokens.
    """
    words = [Word(tokenizer, string) for string in options.banned_strings]
    _check_ids(tokenizer, options, _bans(words, options))
    ends = frozenset[int]() if options.ignore_eos else tokenizer.end_ids
    sampling = options.sampling()
    choices = []
    for i in range(options.n):
        voice = Voice(tokenizer, options.stops, ends, options.min_tokens)
        sequence = TokenSequence(
            list(tokens),
            replace(sampling, choice=i),
            options.max_tokens,
            ends,
            voice.stop,
            min_tokens=options.min_tokens,
            bans=_bans(words, options),
            logprobs=options.top_logprobs if options.logprobs else None,
            scores_prompt=options.echo and options.logprobs,
        )
        choices.append(Choice(sequence, voice, tokenizer if options.echo else None))
    return choices


def _bans(words: Sequence[Word], options: Options) -> list[Ban]:
    bans: list[Ban] = [BannedStrings(words)] if words else []
    if options.banned_sequences:
        bans.append(BannedSequences(options.banned_sequences))
    return bans


def _check_ids(tokenizer: Tokenizer, options: Options, bans: list[Ban]) -> None:
    count = tokenizer.token_count
    named = [("logit_bias", token) for token in options.logit_bias]
    named += [("bad_words", token) for ids in options.banned_sequences for token in ids]
    for name, token in named:
        if token >= count:
            raise UsageError(f"{name} has the id {token}", f"ids go from 0 to {count - 1}")
    banned = {int(token) for ban in bans for token in ban.banned()}
    banned |= tokenizer.end_ids if options.min_tokens and not options.ignore_eos else set()
    if len(banned) >= count:
        raise UsageError("bad_words ban every token", "name fewer")
