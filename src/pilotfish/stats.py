"""Counters of one answer, and the rates derived from them; nothing else is kept."""

from __future__ import annotations

import collections.abc
import itertools
from dataclasses import dataclass, field


@dataclass(slots=True)
class Parts:
    """Where the decode time went, in seconds."""

    draft: float = 0.0
    """Drafters proposing."""
    pass_: float = 0.0
    """The target's passes."""
    sample: float = 0.0
    """Choosing the target's own tokens."""
    control: float = 0.0
    """Deciding how much to draft."""
    other: float = 0.0
    """Rollback, bookkeeping, observing."""

    def as_dict(self) -> dict[str, float]:
        """Return the parts by the names used in JSON."""
        return {
            "draft": self.draft,
            "pass": self.pass_,
            "sample": self.sample,
            "control": self.control,
            "other": self.other,
        }


@dataclass(slots=True)
class Stats:
    """Counters of one sequence.

    Attributes
    ----------
    tokens
        Emitted tokens, the end token included.
    passes
        Passes of the target after the prompt.
    prompt_tokens
        Tokens of the prompt.
    drafted
        Guesses sent to the target, those behind the first mismatch included; not those behind an end, a stop
        or the budget reached inside the accepted run.
    accepted
        Drafted tokens that were kept.
    drafted_at, accepted_at
        The same by draft position: drafts that reach position i, and those of them kept up to there.
    prompt_s, decode_s
        Seconds spent on the prompt (first token included), and after it.
    parts
        `decode_s` by part.
    drafting_off
        Why control drafted nothing at the last step; None if it did.
    """

    tokens: int = 0
    passes: int = 0
    prompt_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    drafted_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    prompt_s: float = 0.0
    decode_s: float = 0.0
    parts: Parts = field(default_factory=Parts)
    drafting_off: str | None = None

    @property
    def acceptance(self) -> float:
        """Accepted / drafted; 0.0 when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """(tokens - 1) / passes, since the first token comes from the prompt; 1.0 is plain decoding."""
        return (self.tokens - 1) / self.passes if self.passes else 0.0

    @property
    def tokens_per_s(self) -> float:
        """(tokens - 1) / decode_s; 0.0 before the second token."""
        return (self.tokens - 1) / self.decode_s if self.decode_s > 0 and self.tokens > 1 else 0.0

    @property
    def parts_s(self) -> dict[str, float]:
        """`decode_s` by part: draft, pass, sample, control, other."""
        return self.parts.as_dict()

    def count_draft(self, drafted: int, accepted: int) -> None:
        """Count one draft of which `drafted` tokens were judged and `accepted` were kept."""
        self.drafted += drafted
        self.accepted += accepted
        missing = drafted - len(self.drafted_at)
        if missing > 0:
            self.drafted_at.extend([0] * missing)
            self.accepted_at.extend([0] * missing)
        for i in range(drafted):
            self.drafted_at[i] += 1
            self.accepted_at[i] += i < accepted

    def count_time(self, times: collections.abc.Sequence[float], share: int) -> None:
        """Add the times of one step, which `share` sequences made together: it counts in equal parts.

        Parameters
        ----------
        times
            When the step began, when drafting, the pass, and choosing did, when that ended, and the step.
        """
        control, draft, pass_, sample, other = ((b - a) / share for a, b in itertools.pairwise(times))
        self.decode_s += (times[-1] - times[0]) / share
        self.parts.control += control
        self.parts.draft += draft
        self.parts.pass_ += pass_
        self.parts.sample += sample
        self.parts.other += other

    def as_dict(self) -> dict[str, object]:
        """Return counters and rates by the names used in JSON."""
        return {
            "tokens": self.tokens,
            "passes": self.passes,
            "prompt_tokens": self.prompt_tokens,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "drafted_at": list(self.drafted_at),
            "accepted_at": list(self.accepted_at),
            "acceptance": self.acceptance,
            "tokens_per_pass": self.tokens_per_pass,
            "prompt_s": self.prompt_s,
            "decode_s": self.decode_s,
            "parts_s": self.parts_s,
            "control": {"drafting_off": self.drafting_off},
        }
