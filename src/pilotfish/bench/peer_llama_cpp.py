"""llama.cpp through the C interface that llama-cpp-python declares; nothing else here knows of it.

Its settings are its defaults (weights repacked for the processor, float16 cache, flash attention where it
chooses to) but for the number of threads, no offloading, and no log.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from llama_cpp import __version__, _ggml, llama_cpp

from pilotfish.bench.peers import LLAMA_CPP
from pilotfish.errors import EngineError

BATCH = 512
LEAST_CONTEXT = 1024
SEQUENCE = 0


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator, unused-ignore]
def _quiet(_level: int, _text: bytes, _data: object) -> None:
    """Say nothing; the library keeps a pointer to this, so it lives as long as the module."""


class LlamaCpp:
    """One sequence in llama.cpp; see `pilotfish.bench.peers.Peer`."""

    name = LLAMA_CPP

    def __init__(self, model: Path, *, room: int, threads: int) -> None:
        """Load a model file; `room` is the most tokens that will be cached.

        Raises
        ------
        EngineError
            llama.cpp can't load the file.
        """
        llama_cpp.llama_log_set(_quiet, ctypes.c_void_p(None))
        llama_cpp.llama_backend_init()
        self._model = self._context = None
        settings = llama_cpp.llama_model_default_params()
        settings.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(model).encode(), settings)
        if not self._model:
            raise EngineError(f"llama.cpp can't load {model}", f"leave out --peer {LLAMA_CPP}")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = max(LEAST_CONTEXT, -(-room // 256) * 256)
        context.n_batch = context.n_ubatch = BATCH
        context.n_threads = context.n_threads_batch = threads
        context.type_k = context.type_v = llama_cpp.GGML_TYPE_F16
        context.offload_kqv = context.op_offload = False
        context.no_perf = True
        self._context = llama_cpp.llama_init_from_model(self._model, context)
        if not self._context:
            self.close()
            raise EngineError(
                f"llama.cpp can't make a context of {context.n_ctx} tokens for {model}",
                f"leave out --peer {LLAMA_CPP}, or take a smaller --context",
            )
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._held: list[int] = []
        self._intact = False
        self._make_batch()

    def _make_batch(self) -> None:
        """Allocate the arrays of a batch once, so that filling them takes no time worth counting."""
        self._tokens = np.zeros(BATCH, np.int32)
        self._positions = np.zeros(BATCH, np.int32)
        self._sequence_counts = np.ones(BATCH, np.int32)
        self._wanted = np.zeros(BATCH, np.int8)
        self._sequence = ctypes.c_int32(SEQUENCE)
        int32_p, int8_p = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int8)
        self._sequences = (int32_p * BATCH)(*[ctypes.pointer(self._sequence)] * BATCH)
        self._batch = llama_cpp.llama_batch(
            n_tokens=0,
            token=self._tokens.ctypes.data_as(int32_p),
            embd=None,
            pos=self._positions.ctypes.data_as(int32_p),
            n_seq_id=self._sequence_counts.ctypes.data_as(int32_p),
            seq_id=self._sequences,
            logits=self._wanted.ctypes.data_as(int8_p),
        )

    @property
    def version(self) -> str:
        """Versions of the package and of the tensor library within."""
        version = _ggml.libggml.ggml_version
        version.restype, version.argtypes = ctypes.c_char_p, []
        return f"llama-cpp-python {__version__}, ggml {version().decode()}"

    @property
    def build(self) -> str:
        """What the library was compiled to use."""
        return str(llama_cpp.llama_print_system_info().decode()).strip(" |")

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return 1 + int(llama_cpp.llama_memory_seq_pos_max(self._memory, SEQUENCE))

    def hold(self, tokens: Sequence[int]) -> None:
        """Put these tokens, and nothing else, into the cache."""
        self._held = list(tokens)
        self._intact = False
        self.restore()

    def run(self, tokens: Sequence[int]) -> None:
        """Evaluate one pass behind the held tokens, with the logits of each of its tokens."""
        self._decode(tokens, len(self._held), wanted=True)

    def read(self, tokens: Sequence[int]) -> None:
        """Read a prompt into an empty cache, without logits."""
        self._intact = False
        llama_cpp.llama_memory_clear(self._memory, False)
        for begin in range(0, len(tokens), BATCH):
            self._decode(tokens[begin : begin + BATCH], begin, wanted=False)

    def restore(self) -> None:
        """Hold again what `hold` was given."""
        if self._intact:
            llama_cpp.llama_memory_seq_rm(self._memory, SEQUENCE, len(self._held), -1)
        else:
            self.read(self._held)
            self._intact = True

    def close(self) -> None:
        """Free everything; further calls do nothing."""
        if self._context:
            llama_cpp.llama_free(self._context)
        if self._model:
            llama_cpp.llama_model_free(self._model)
        self._model = self._context = None

    def _decode(self, tokens: Sequence[int], position: int, *, wanted: bool) -> None:
        n = len(tokens)
        self._tokens[:n] = tokens
        self._positions[:n] = np.arange(position, position + n)
        self._wanted[:n] = wanted
        self._batch.n_tokens = n
        code = llama_cpp.llama_decode(self._context, self._batch)
        if code:
            raise EngineError(
                f"llama.cpp refuses a pass over {n} tokens: llama_decode returned {code}",
                f"leave out --peer {LLAMA_CPP}",
            )
        llama_cpp.llama_synchronize(self._context)
