"""Bodies that are too much to read at once, though they are not too long.

Whatever decodes JSON holds up all threads until it is done. 8 MiB of text take some ten milliseconds, but
8 MiB of empty lists three seconds, and 64 kB of `1e304` a seventh of a second. So what makes a body slow is
counted first, by fast means.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pilotfish.server.refusals import Refusal

LARGE: Final = 1 << 16
"""Bytes up to which a body is decoded on the event loop: another thread would cost more than it saves."""

MOST_NAMED: Final = LARGE
"""Lists, objects and fields of a body at most; bodies that are not `LARGE` can't have more."""

MOST_VALUES: Final = 1 << 18
"""Values of a body at most: token ids above all. That is 32 full contexts of 8,192."""

MOST_POINTS: Final = 1152
"""Decimal points of a body at most, and exponents: `logit_bias` may have 1,024 numbers with both.

msgspec takes up to 15 microseconds for a number with an exponent, and half a one for one with a point.
"""

STRETCH: Final = 40
"""Digits of numbers that are counted as long. Python's time for a whole number grows as their square."""

MOST_STRETCHES: Final = 128
"""So many times `STRETCH` digits may the long numbers of a body have."""

PIECE: Final = LARGE
"""Bytes that are looked at in one go."""


def check_bulk(body: bytes) -> None:
    """Refuse a body that would take long to decode; if it is `LARGE`, not to be called on the event loop.

    Raises
    ------
    Refusal
        413: more than `MOST_NAMED` lists, objects and fields, `MOST_VALUES` values, `MOST_POINTS` points or
        exponents, or `MOST_STRETCHES` of `STRETCH` digits.
    """
    named = values = points = exponents = stretches = 0
    for text in outside_strings(body):
        lists = text.count(b"[") + text.count(b"{")
        named += lists + text.count(b":")
        values += lists + text.count(b",")
        points += text.count(b".")
        exponents += text.count(b"E") + text.count(b"e") - text.count(b"true") - text.count(b"false")
        stretches += text.translate(_DIGITS).count(b"0" * STRETCH)
        if named > MOST_NAMED:
            raise _too_much(f"{MOST_NAMED} lists, objects and fields")
        if values > MOST_VALUES:
            raise _too_much(f"{MOST_VALUES} values")
        if max(points, exponents) > MOST_POINTS:
            raise _too_much(f"{MOST_POINTS} decimal points or exponents")
        if stretches > MOST_STRETCHES:
            raise _too_much(f"{MOST_STRETCHES * STRETCH} digits in long numbers")


_DIGITS: Final = bytes.maketrans(b"123456789", b"0" * 9)


def _too_much(what: str) -> Refusal:
    return Refusal(413, f"the body has more than {what}; send less", code="request_too_large")


def outside_strings(body: bytes, piece: int = PIECE) -> Iterator[bytes]:
    """Yield what of a body stands outside its strings, up to where it is no JSON if it is none."""
    in_string, escape = 0, b""
    for begin in range(0, len(body), piece):
        text = escape + body[begin : begin + piece]
        slashes = len(text) - len(text.rstrip(b"\\"))
        escape = b"\\" if slashes % 2 else b""
        text = text[: len(text) - len(escape)]
        parts = text.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        yield b"".join(parts[in_string::2])
        in_string = (in_string + len(parts) - 1) % 2
