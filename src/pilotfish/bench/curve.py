"""Times of passes by size: what is measured of pilotfish and of others alike."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Times of passes over n tokens and of reading a prompt, by one implementation.

    Attributes
    ----------
    rows
        Seconds by number of tokens in the pass, one entry a repeat.
    prefill
        Seconds for a prompt of so many tokens, one entry a repeat.
    """

    rows: dict[int, list[float]]
    prefill: dict[int, list[float]]

    def median_s(self, tokens: int) -> float:
        """Return the median seconds of a pass over so many tokens."""
        return statistics.median(self.rows[tokens])

    def prefill_tokens_s(self, tokens: int) -> float:
        """Return tokens a second, by the median, of a prompt of so many tokens."""
        return tokens / statistics.median(self.prefill[tokens])

    def rows_as_dicts(self, floor_s: float) -> list[dict[str, float]]:
        """Return `rows` in JSON; `floor_s` is the seconds that no pass can be faster than."""
        one = self.median_s(min(self.rows))
        return [
            {
                "n": n,
                "median_ms": 1e3 * self.median_s(n),
                "min_ms": 1e3 * min(times),
                "cost_ratio": self.median_s(n) / one,
                "over_floor": self.median_s(n) / floor_s,
            }
            for n, times in self.rows.items()
        ]

    def prefill_as_dicts(self) -> list[dict[str, float]]:
        """Return `prefill` in JSON."""
        return [{"n": n, "tokens_per_s": self.prefill_tokens_s(n)} for n in self.prefill]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCurve(Curve):
    """The curve of another implementation, measured in the same run.

    Attributes
    ----------
    version, build
        What was measured, and how it was compiled, in its own words.
    """

    version: str
    build: str

    def as_dict(self, floor_s: float) -> dict[str, object]:
        """Return an entry of `peers` in JSON."""
        return {
            "version": self.version,
            "build": self.build,
            "rows": self.rows_as_dicts(floor_s),
            "prefill": self.prefill_as_dicts(),
        }
