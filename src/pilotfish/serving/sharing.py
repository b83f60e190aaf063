"""How the rows of a pass are shared out among the prompts that are being read."""

from __future__ import annotations

from collections.abc import Sequence


def fair_shares(wants: Sequence[int], room: int) -> list[int]:
    """Give everyone the same, but nobody more than they want: what is left over goes to the others.

    So whoever wants little is served at once, and nobody waits: with `room` for at least one each, each gets
    at least one (max-min fairness; Bertsekas and Gallager, "Data Networks", 1987, section 6.5).

    Parameters
    ----------
    wants
        What each could use, 0 or more.
    room
        What there is in all.
    """
    shares = [0] * len(wants)
    for done, i in enumerate(sorted(range(len(wants)), key=wants.__getitem__)):
        shares[i] = min(wants[i], room // (len(wants) - done))
        room -= shares[i]
    return shares
