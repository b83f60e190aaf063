"""One line a request: what it took, and what drafting brought; no texts unless they are asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pilotfish.errors import Cancelled, shown_name

if TYPE_CHECKING:
    from starlette.types import Scope

    from pilotfish.server.refusals import Refusal
    from pilotfish.server.service import Reply
    from pilotfish.text.tokenizer import Tokenizer

requests = logging.getLogger("pilotfish.requests")


class RequestLog:
    """Writes the lines; an observer of a service.

    Parameters
    ----------
    tokenizer
        Given, prompts and answers are logged too, as Python writes strings.
    """

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        self._tokenizer = tokenizer

    def __call__(self, reply: Reply) -> None:
        """Log a request that has ended."""
        requests.info("%s", line(reply))
        if self._tokenizer is not None:
            first = reply.choices[0].sequence
            prompt = first.tokens[: first.stats.prompt_tokens]
            requests.info("%s prompt %r", reply.label, self._tokenizer.decode(prompt, special=True))
            for choice, count in zip(reply.choices, reply.said, strict=True):
                begin = choice.sequence.stats.prompt_tokens
                said = choice.sequence.tokens[begin : begin + count]
                requests.info("%s answer %r", reply.label, self._tokenizer.decode(said, special=True))


def log_refusal(scope: Scope, refusal: Refusal) -> None:
    """Log a request that was refused: the status, and which field; not the message, which may quote it."""
    parts = [f"{scope['path']!r} {refusal.status}", refusal.code]
    if refusal.param:  # may be a name that the client made up, and a line of its own then
        parts.append(shown_name(refusal.param))
    requests.info("%s", " ".join(part for part in parts if part))


def line(reply: Reply) -> str:
    """Return the line: where, which, how it ended, tokens, seconds, rates."""
    ticket = reply.ticket
    stats = [choice.sequence.stats for choice in reply.choices]
    passes, after_first = sum(one.passes for one in stats), sum(max(0, tokens - 1) for tokens in reply.said)
    drafted, accepted = sum(one.drafted for one in stats), sum(one.accepted for one in stats)
    parts = [
        f"{reply.endpoint or '-'} {reply.label or '-'} {_how(reply)}",
        f"prompt {stats[0].prompt_tokens} ({ticket.reused} cached)",
        f"{sum(reply.said)} tokens",
    ]
    if ticket.begun_s is not None:
        parts.append(f"queued {ticket.begun_s - ticket.submitted_s:.3f} s")
    if ticket.first_s is not None and reply.scores_only:
        parts.append(f"read after {ticket.first_s - ticket.submitted_s:.3f} s")
    elif ticket.first_s is not None and ticket.ended_s is not None:
        seconds = ticket.ended_s - ticket.first_s
        rate = after_first / seconds if seconds > 0 else 0.0
        parts += [f"first after {ticket.first_s - ticket.submitted_s:.3f} s", f"{rate:.1f} tokens/s"]
    share = f" ({accepted / drafted:.0%})" if drafted else ""
    parts.append(f"{accepted} of {drafted} drafted accepted{share}")
    if passes:
        parts.append(f"{after_first / passes:.2f} tokens per pass")
    if ticket.preempted:
        parts.append(f"read anew {ticket.preempted} times")
    return ", ".join(parts)


def _how(reply: Reply) -> str:
    if isinstance(reply.error, Cancelled):
        return "cancelled"
    if reply.error is not None:
        return f"failed ({type(reply.error).__name__})"
    if reply.scores_only:
        return "length"  # whatever the token is that counts nowhere
    return "/".join(dict.fromkeys(str(choice.sequence.finish_reason) for choice in reply.choices))
