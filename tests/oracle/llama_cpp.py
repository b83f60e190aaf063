"""The logits of llama.cpp, through the C interface of the library inside the `xllamacpp` wheel.

Runs by itself under a Python that has xllamacpp and numpy; pilotfish's own environment needs no peer::

    python llama_cpp.py MODEL TEXTS.json FOLDER [--threads N]

TEXTS.json is a list of strings. FOLDER receives `info.json` (version, build flags, token ids) and `0.npy`,
`1.npy` ...: float32 logits of all positions, shape (tokens, vocab). A text is one decode call, as in its
perplexity tool; everything else is llama.cpp's default (float16 cache).
"""

from __future__ import annotations

import argparse
import ctypes
import json
from ctypes import c_char_p, c_float, c_int32, c_void_p
from pathlib import Path

import numpy as np
import xllamacpp  # type: ignore[import-not-found,unused-ignore]


class _Params(ctypes.Structure):
    """Any parameter struct of the library, with room to spare.

    They are returned and passed in memory, as the last argument, so a larger struct than the library's own
    does no harm. Only the context's first three words are touched (n_ctx, n_batch, n_ubatch), checked by
    their defaults.
    """

    _fields_ = (("words", ctypes.c_uint32 * 256),)


class _Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", c_int32),
        ("token", ctypes.POINTER(c_int32)),
        ("embd", ctypes.POINTER(c_float)),
        ("pos", ctypes.POINTER(c_int32)),
        ("n_seq_id", ctypes.POINTER(c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "llama_backend_init": (None, []),
    "llama_print_system_info": (c_char_p, []),
    "ggml_version": (c_char_p, []),
    "llama_log_set": (None, [c_void_p, c_void_p]),
    "llama_model_default_params": (_Params, []),
    "llama_context_default_params": (_Params, []),
    "llama_model_load_from_file": (c_void_p, [c_char_p, _Params]),
    "llama_init_from_model": (c_void_p, [c_void_p, _Params]),
    "llama_free": (None, [c_void_p]),
    "llama_set_n_threads": (None, [c_void_p, c_int32, c_int32]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
    "llama_tokenize": (
        c_int32,
        [c_void_p, c_char_p, c_int32, ctypes.POINTER(c_int32), c_int32, ctypes.c_bool, ctypes.c_bool],
    ),
    "llama_batch_init": (_Batch, [c_int32, c_int32, c_int32]),
    "llama_batch_free": (None, [_Batch]),
    "llama_decode": (c_int32, [c_void_p, _Batch]),
    "llama_get_logits": (ctypes.POINTER(c_float), [c_void_p]),
}
CONTEXT = 1024


class LlamaCpp:
    """A model in llama.cpp."""

    def __init__(self, path: Path, threads: int) -> None:
        self._library = ctypes.CDLL(str(next(Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
        self._quiet = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)(lambda *_: None)
        self._library.llama_log_set(ctypes.cast(self._quiet, c_void_p), None)
        self._library.llama_backend_init()
        self._model = self._library.llama_model_load_from_file(
            str(path).encode(), self._library.llama_model_default_params()
        )
        if not self._model:
            raise OSError(f"llama.cpp can't load {path}")
        self._vocab = self._library.llama_model_get_vocab(self._model)
        self._vocab_size = self._library.llama_vocab_n_tokens(self._vocab)
        self._threads = threads

    def info(self) -> dict[str, object]:
        """Return version and build flags."""
        return {
            "package": f"xllamacpp {xllamacpp.__version__}",
            "ggml": self._library.ggml_version().decode(),
            "system_info": self._library.llama_print_system_info().decode().strip(" |"),
            "threads": self._threads,
        }

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of `text`, special tokens in it recognised, BOS only if the file asks for one."""
        data = text.encode()
        room = (c_int32 * (len(data) + 8))()
        count = self._library.llama_tokenize(self._vocab, data, len(data), room, len(room), True, True)
        return list(room[:count])

    def logits(self, tokens: list[int]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """Return float32 logits after each token, shape (n, vocab), from one decode call."""
        if len(tokens) > CONTEXT:
            raise ValueError(f"{len(tokens)} tokens in a context of {CONTEXT}")
        params = self._library.llama_context_default_params()
        if list(params.words[:3]) != [512, 2048, 512]:
            raise OSError("this llama.cpp has another layout of its context parameters")
        params.words[0] = params.words[1] = params.words[2] = CONTEXT
        context = self._library.llama_init_from_model(self._model, params)
        self._library.llama_set_n_threads(context, self._threads, self._threads)
        batch = self._library.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        if self._library.llama_decode(context, batch):
            raise OSError("llama.cpp can't decode the text")
        rows = self._library.llama_get_logits(context)
        out = np.ctypeslib.as_array(rows, (len(tokens), self._vocab_size)).copy()
        self._library.llama_batch_free(batch)
        self._library.llama_free(context)
        return out


def main() -> None:
    """Write the logits of the texts, as the module docstring says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    model = LlamaCpp(arguments.model, arguments.threads)
    ids = [model.tokenize(text) for text in json.loads(arguments.texts.read_text())]
    for i, tokens in enumerate(ids):
        np.save(arguments.folder / f"{i}.npy", model.logits(tokens))
    (arguments.folder / "info.json").write_text(json.dumps({**model.info(), "ids": ids}))


if __name__ == "__main__":
    main()
