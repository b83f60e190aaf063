"""The native engine: a GGUF file, packed for this machine, evaluated by our kernels."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from pilotfish.engines.base import Chunk, Reserve
from pilotfish.engines.native.builder import Builder
from pilotfish.engines.native.config import Config
from pilotfish.engines.native.container import Container, Value
from pilotfish.engines.native.families import family_named
from pilotfish.engines.native.families.decoder import attention_shape
from pilotfish.engines.native.kv import PAGE, PageTables, tables_of
from pilotfish.engines.native.rows import NativeRows
from pilotfish.engines.native.slim import Slim
from pilotfish.engines.native.threads import MOST_THREADS, default_threads
from pilotfish.errors import Cancelled, EngineError, OutOfMemory, UsageError
from pilotfish.kernels import _kernels

DEFAULT_CONTEXT = 8192


class NativeEngine:
    """One model in memory.

    A row's bits depend on its sequence's tokens alone: not on how they were split into passes, on other
    sequences of a pass, or on the number of threads.

    Attributes
    ----------
    metadata
        The file's header.
    family
        `general.architecture`.
    threads
        Threads of a pass.
    isa
        Instruction set of the kernels.
    weights_bytes
        Bytes of the packed weights.
    kv_bytes_per_token
        Bytes that a cached token takes.
    """

    def __init__(
        self, builder: Builder, metadata: dict[str, Value], *, isa: str, threads: int, context: int
    ) -> None:
        """Use `NativeEngine.load`."""
        self.metadata = metadata
        self.family = builder.config.architecture
        self.threads = threads
        self.isa = isa
        self.weights_bytes = builder.weights_bytes
        self._full_bytes = builder.read_bytes
        self._head = builder.head
        self._head_group_bytes = builder.head_group_bytes
        self.kv_bytes_per_token = builder.pages.page_bytes // PAGE
        self._program: _kernels.Program | None = builder.program
        self._tables = PageTables(builder.pages, -(-context // PAGE))
        self._vocab_size = builder.vocab_size
        self._context = context
        self._passes = 0
        self._pass_runs = threading.Lock()

    @classmethod
    def load(
        cls,
        model: str | Path | Container,
        *,
        threads: int | None = None,
        context: int | None = None,
        isa: str | None = None,
        float_activations: bool = False,
        progress: Callable[[float], None] | None = None,
        slim: Slim | None = None,
    ) -> NativeEngine:
        """Read a file and pack its weights.

        Parameters
        ----------
        model
            Path of a GGUF file, or the file already open; that one stays open.
        threads
            Default: the cores that affinity and container leave.
        context
            Most tokens of a sequence; default min(the model's, 8192).
        isa
            Default: `PILOTFISH_ISA`, else the best this machine has.
        float_activations
            For tests: activations aren't quantized, and passes are slow.
        progress
            Called with the share loaded, 0..1.
        slim
            What to leave out, of a model that only drafts.

        Raises
        ------
        ModelError
            The file can't be used; see `pilotfish.errors`.
        UsageError
            An option out of range.
        """
        isa = _isa(isa or os.environ.get("PILOTFISH_ISA"))
        threads = default_threads() if threads is None else threads
        if not 1 <= threads <= MOST_THREADS:
            raise UsageError(f"threads is {threads}", f"use 1..{MOST_THREADS}, or leave it out")
        opened = contextlib.nullcontext(model) if isinstance(model, Container) else Container.open(model)
        with opened as container:
            config = Config(container.metadata)
            build = family_named(config.architecture)
            longest = config.integer("context_length", most=1 << 30)
            if context is not None and not 1 <= context <= longest:
                raise UsageError(f"context is {context}", f"this model holds 1..{longest} tokens")
            context = context or min(longest, DEFAULT_CONTEXT)
            builder = Builder(
                container,
                config,
                attention_shape(config),
                context=context,
                isa=isa,
                threads=threads,
                float_activations=float_activations,
                progress=progress or (lambda _share: None),
                slim=slim,
            )
            build(builder)
            config.refuse_unread()
            builder.refuse_unused()
            metadata = container.metadata
        return cls(builder, metadata, isa=isa, threads=threads, context=context)

    @property
    def vocab_size(self) -> int:
        """Number of logits a row has, padding ids included."""
        return self._vocab_size

    @property
    def context(self) -> int:
        """Largest number of tokens a sequence may hold."""
        return self._context

    @property
    def read_bytes(self) -> int:
        """Bytes, as filed or as rounded, of what a pass over one token reads of the weights."""
        return self._full_bytes + (0 if self._head is None else len(self._head) * self._head_group_bytes)

    @property
    def pages_in_use(self) -> int:
        """KV pages that some sequence holds."""
        return self._tables.pages_in_use

    @property
    def most_pages(self) -> int | None:
        """Most KV pages, of 64 tokens each, that all sequences may hold together; None for no bound.

        A pass that needs more is OutOfMemory, and nothing has changed.
        """
        return self._tables.most

    @most_pages.setter
    def most_pages(self, most: int | None) -> None:
        self._tables.most = most

    @property
    def work_bytes(self) -> int:
        """Bytes of what passes work on; it grows with the largest pass."""
        return self.program(self._passes).work_bytes

    @property
    def reserved_tokens(self) -> int:
        """Tokens whose memory in the KV cache is taken, used or not."""
        return self._tables.reserved * PAGE

    def reserve(self, reserve: Reserve) -> int:
        """Take memory now, so that no pass within these bounds takes any.

        Returns
        -------
            Bytes that passes and the KV cache have then.

        Raises
        ------
        OutOfMemory
            There is not enough.
        """
        with self._pass_runs:
            program = self.program(self._passes)
            try:
                program.reserve(reserve.rows, reserve.wanted, self._context, self.threads)
            except MemoryError:
                raise OutOfMemory(
                    f"no memory is left for passes over {reserve.rows} tokens", "end other programs"
                ) from None
            self._tables.reserve_pages(-(-reserve.tokens // PAGE))
            return program.work_bytes + self.reserved_tokens * self.kv_bytes_per_token

    def open(self) -> int:
        """Return the handle of a new, empty sequence."""
        return self._tables.open()

    def close(self, sequence: int) -> None:
        """Free a sequence."""
        self._tables.close(sequence)

    def length(self, sequence: int) -> int:
        """Return the number of evaluated tokens that the sequence holds."""
        return self._tables[sequence].length

    def truncate(self, sequence: int, length: int) -> None:
        """Forget the tokens from the absolute `length` on."""
        self._tables.truncate(sequence, length)

    def fork(self, sequence: int) -> int:
        """Return a new sequence that holds the same tokens; pages are shared until written to."""
        return self._tables.fork(sequence)

    def wants(self, tokens: Iterable[int]) -> None:
        """Let the head say these ids from the next pass on, since a text uses them.

        A head that is not restricted says all ids anyway; a restricted one says what was wanted last, within
        bounds. Logits of ids that can't be said are -inf; the methods of rows are over the others.
        """
        if self._head is not None:
            self._head.want(tokens)

    def forward(self, chunks: Sequence[Chunk]) -> NativeRows:
        """Evaluate one pass.

        Raises
        ------
        EngineError
            A chunk breaks the contract, or a pass runs already, in another thread.
        Cancelled
            `cancel` was called.
        OutOfMemory
            There is no room for more of the KV cache, or for what a pass works on.
        KeyboardInterrupt
            Ctrl-C, within the pass too; likewise what other handlers of signals raise.
        """
        if not self._pass_runs.acquire(blocking=False):
            raise EngineError(
                "a pass of this engine runs already", "use an engine from one thread at a time, or load two"
            )
        try:
            return self._forward(chunks)
        finally:
            self._pass_runs.release()

    def _forward(self, chunks: Sequence[Chunk]) -> NativeRows:
        program = self.program(self._passes)
        wanted = self._check(chunks)
        tokens = np.fromiter((t for c in chunks for t in c.tokens), dtype=np.int32)
        self._passes += 1
        groups = None if self._head is None else self._head.take_changed()
        if groups is not None:
            program.set_head_groups(groups)
        try:
            sequences = [self._tables.reserve(c.sequence, len(c.tokens)) for c in chunks]
            lengths = [len(c.tokens) for c in chunks]
            bases = [s.length for s in sequences]
            finished = program.run(
                tokens,
                np.concatenate(
                    [np.arange(b, b + n, dtype=np.int32) for b, n in zip(bases, lengths, strict=True)]
                ),
                np.array(lengths, dtype=np.int32),
                np.array(bases, dtype=np.int32),
                np.array(tables_of(sequences, lengths), dtype=np.int32),
                np.array(wanted, dtype=np.int32),
                None,
                self.threads,
            )
        except MemoryError:
            self._undo(chunks)
            raise OutOfMemory(
                f"no memory is left for a pass over {len(tokens)} tokens", "end other programs"
            ) from None
        except BaseException:
            self._undo(chunks)
            raise
        if not finished:
            self._undo(chunks)
            raise Cancelled("the pass was cancelled")
        for sequence, length in zip(sequences, lengths, strict=True):
            sequence.length += length
        return NativeRows(self, self._passes, len(wanted))

    def _undo(self, chunks: Sequence[Chunk]) -> None:
        """Give back what a pass that failed has reserved."""
        for chunk in chunks:
            self._tables.undo_reserve(chunk.sequence)

    def parts_s(self) -> dict[str, float]:
        """Return the seconds of the last pass by part: qkv, rope, attention, output, mlp, head and so on.

        Nothing if no pass has begun.
        """
        program = self.program(self._passes)
        parts: dict[str, float] = {}
        for part, seconds in zip(program.op_parts(), program.seconds(), strict=False):
            parts[part] = parts.get(part, 0.0) + seconds
        return parts

    def cancel(self) -> None:
        """Make the pass that runs now (in another thread) or, if none does, the next one end with Cancelled.

        Exactly one pass ends so; calls before that are one. Whoever cancels an answer that may have come to
        its end meanwhile calls `uncancel` once it has.
        """
        if self._program is not None:
            self._program.cancel()

    def uncancel(self) -> bool:
        """Take back a `cancel` that no pass has ended for; tell whether there was one."""
        return self._program is not None and self._program.uncancel()

    def dispose(self) -> None:
        """Free weights and caches; any later pass is an EngineError."""
        self._program = None

    def program(self, pass_number: int) -> _kernels.Program:
        """Return the program while `pass_number` is the newest pass."""
        if self._program is None:
            raise EngineError("the engine was disposed of", "load the model again")
        if pass_number != self._passes:
            raise EngineError(
                "these rows belong to an earlier pass", "use rows before the engine's next pass"
            )
        return self._program

    def _check(self, chunks: Sequence[Chunk]) -> list[int]:
        """Return the pass's wanted rows, or raise EngineError before anything has changed."""
        wanted: list[int] = []
        seen: set[int] = set()
        row = 0
        for chunk in chunks:
            count = len(chunk.tokens)
            if chunk.sequence in seen:
                raise EngineError(f"sequence {chunk.sequence} stands twice in a pass")
            seen.add(chunk.sequence)
            if not count or not 0 <= chunk.wanted <= count:
                raise EngineError(f"a chunk of {count} tokens wants {chunk.wanted} rows")
            if self.length(chunk.sequence) + count > self._context:
                raise EngineError(f"sequence {chunk.sequence} would exceed the context of {self._context}")
            if not all(0 <= token < self._vocab_size for token in chunk.tokens):
                raise EngineError(f"a token id is not in 0..{self._vocab_size - 1}")
            row += count
            wanted.extend(range(row - chunk.wanted, row))
        if not row:
            raise EngineError("the pass is empty")
        return wanted


def _isa(wanted: str | None) -> str:
    available = _kernels.isas()
    if wanted is None:
        return available[0]
    if wanted not in available:
        raise UsageError(f"PILOTFISH_ISA is {wanted!r}", f"this machine has {', '.join(available)}")
    return wanted
