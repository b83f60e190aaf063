"""How the rows of a pass are shared out among the prompts that are being read."""

from __future__ import annotations

from collections.abc import Sequence


def reading_shares(wants: Sequence[int], left: Sequence[int], room: int) -> list[int]:
    """Give half of the rows to who is done soonest, one after the other, and share the others evenly.

    So a short text is not held up by long ones, however many, which still go on: the fewer passes a text
    needs, the less it waits for others (Schrage 1968, "A proof of the optimality of the shortest remaining
    processing time discipline"), and nobody's share is less than half of the even one.

    Parameters
    ----------
    wants
        What each could use, 0 or more.
    left
        How much each has to read until it, or someone who waits for it, is done.
    room
        What there is in all, at least one for each.
    """
    soonest = max(0, min(room // 2, room - len(wants)))
    shares = [0] * len(wants)
    for i in sorted(range(len(wants)), key=left.__getitem__):
        shares[i] = min(wants[i], soonest)
        soonest -= shares[i]
    rest = [want - share for want, share in zip(wants, shares, strict=True)]
    evenly = fair_shares(rest, room - sum(shares))
    return [share + more for share, more in zip(shares, evenly, strict=True)]


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
