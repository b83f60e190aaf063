"""Stop strings in a stream of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.errors import UsageError
from pilotfish.text.detokenizer import Detokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.text.tokenizer import Tokenizer


class StopMatcher:
    """Finds the earliest stop string, however the text is split into pieces.

    The earliest is the one that is complete first, of two complete with the same character the longer one:
    the only rule under which the answer does not depend on text that is still to come.

    Attributes
    ----------
    stop
        The stop string found, or None.
    """

    def __init__(self, stops: str | Sequence[str]) -> None:
        self._stops = (stops,) if isinstance(stops, str) else tuple(stops)
        for stop in self._stops:
            if not isinstance(stop, str) or not stop:
                raise UsageError(f"a stop string must be a text of at least one character, not {stop!r}")
        self._held = ""
        self.stop: str | None = None

    def push(self, piece: str, *, armed: bool = True) -> str:
        """Return the text that is safe to show: before a stop, and no beginning of one.

        Everything after a stop is dropped. Unless `armed`, a stop that is complete with this piece is none;
        one that begins here and is complete later is.
        """
        if self.stop is not None:
            return ""
        text = self._held + piece
        new = len(self._held) + 1  # a stop that ends before here was let pass
        found = [
            (at + len(stop), at, stop)
            for stop in self._stops
            if armed and (at := text.find(stop, max(0, new - len(stop)))) >= 0
        ]
        if found:
            _, start, self.stop = min(found)
            self._held = ""
            return text[:start]
        safe = min((_unsafe_from(text, stop) for stop in self._stops), default=len(text))
        self._held = text[safe:]
        return text[:safe]

    def finish(self) -> str:
        """Return what was held back, the text having ended."""
        rest, self._held = self._held, ""
        return rest


def _unsafe_from(text: str, stop: str) -> int:
    """Return where the longest end of `text` starts that `stop` begins with; len(text) if there is none."""
    at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while at >= 0:
        if stop.startswith(text[at:]):
            return at
        at = text.find(stop[0], at + 1)
    return len(text)


class TextStopper:
    """The text of an answer as its tokens come in, and whether a stop string is complete: a stop test.

    Call it with each emitted token in order, until it says True. End tokens add no text. A stop string that
    is complete with one of the first `min_tokens` tokens is none.

    Attributes
    ----------
    piece
        The text that became safe to show with the newest token.
    text
        All of it so far; after `finish`, the text of the answer.
    """

    def __init__(self, tokenizer: Tokenizer, stops: str | Sequence[str] = (), *, min_tokens: int = 0) -> None:
        self._ends = tokenizer.end_ids
        self._unarmed = min_tokens
        self._detokenizer = Detokenizer(tokenizer)
        self._matcher = StopMatcher(stops)
        self._pieces: list[str] = []
        self.piece = ""

    def __call__(self, token_id: int) -> bool:
        """Take the next token; True if it completes a stop string."""
        self._unarmed -= 1
        if token_id in self._ends:
            self.piece = ""
        else:
            self._emit(self._matcher.push(self._detokenizer.push(token_id), armed=self._unarmed < 0))
        return self.stop is not None

    def finish(self) -> str:
        """Return, and add to `text`, what was held back: half a stop string, half a character."""
        self._emit(self._matcher.push(self._detokenizer.finish()) + self._matcher.finish())
        return self.piece

    def _emit(self, piece: str) -> None:
        self.piece = piece
        if piece:
            self._pieces.append(piece)

    @property
    def stop(self) -> str | None:
        """The stop string found, or None."""
        return self._matcher.stop

    @property
    def text(self) -> str:
        """All text that is safe to show so far."""
        return "".join(self._pieces)
