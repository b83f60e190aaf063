"""The tree of errors; each names the offending value and, in `hint`, how to mend it.

::

    PilotfishError
    ├── UsageError            an argument or option that makes no sense (also a ValueError)
    │   └── PromptTooLong     more prompt tokens than the context holds
    ├── ModelError            a model file that can't be used
    │   ├── FormatError       not a GGUF file, truncated, counts or offsets beyond the file
    │   ├── UnsupportedError  a family, key, tensor type or pre-tokenizer that is not known
    │   └── VocabularyMismatch  a draft model with other tokens than the target
    ├── HubError              a model can't be found or fetched
    │   ├── UnknownModel      no such name; suggests the nearest
    │   ├── OfflineError      nothing cached and no network, or --offline
    │   └── ChecksumError     the bytes fetched are not the bytes promised
    ├── CacheError            the cache folder can't be written, or the disk is full
    ├── OutOfMemory           the model, or more text, does not fit; names need and room
    ├── QueueFull             too many requests are waiting already
    ├── Unavailable           no more requests are taken: the server is about to end
    ├── TemplateError         the chat template is missing, unsafe or fails
    └── EngineError           a pass failed
        ├── NumericsError     NaN or infinite logits
        └── Cancelled         the pass, or the request, was cancelled; the cache holds what it held before
"""

from __future__ import annotations

import reprlib
from typing import Final

_SHORT: Final = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxstring, _SHORT.maxother = 2, 4, 80, 80


def shown(value: object) -> str:
    """Return `repr` of a value from outside for a message, cut to 80 characters or some items of a list."""
    return _SHORT.repr(value)


def shown_name(name: str) -> str:
    """Return a name from outside for a message, without quotes, but with escapes and cut as by `shown`."""
    return shown(name)[1:-1]


class PilotfishError(Exception):
    """Base of all errors raised on purpose.

    Parameters
    ----------
    message
        One sentence that names the offending value.
    hint
        One sentence that says how to mend it; may be empty.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(PilotfishError, ValueError):
    """An argument or option that makes no sense."""


class PromptTooLong(UsageError):
    """More prompt tokens than the context holds."""


class ModelError(PilotfishError):
    """A model file that can't be used."""


class FormatError(ModelError):
    """Not a GGUF file, a truncated one, or counts and offsets beyond the file."""


class UnsupportedError(ModelError):
    """A family, key, tensor type or pre-tokenizer that is not known."""


class VocabularyMismatch(ModelError):
    """A draft model whose tokens are not the target's."""


class HubError(PilotfishError):
    """A model can't be found or fetched."""


class UnknownModel(HubError):
    """No model of that name; the hint suggests the nearest."""


class OfflineError(HubError):
    """Nothing cached, and no network or none wanted."""


class ChecksumError(HubError):
    """The bytes fetched are not the bytes promised."""


class CacheError(PilotfishError):
    """The cache folder can't be written, or the disk is full."""


class OutOfMemory(PilotfishError):
    """The model does not fit into memory, or there is none left for more text."""


class QueueFull(PilotfishError):
    """Too many requests are waiting already."""


class Unavailable(PilotfishError):
    """No more requests are taken, since the server is about to end."""


class TemplateError(PilotfishError):
    """The chat template is missing, unsafe, or fails."""


class EngineError(PilotfishError):
    """A pass failed."""


class NumericsError(EngineError):
    """NaN or infinite logits: an error, never a token."""


class Cancelled(EngineError):
    """The pass was cancelled, and every cache holds what it held before; or the request was."""
