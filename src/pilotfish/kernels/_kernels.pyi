from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


class Adjustment:
    """Lists of ids whose logits are changed; see adjusting.py."""

    def __init__(self, ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], repeated: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], generated: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], biased: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], bias: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], banned: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], presence_penalty: float, frequency_penalty: float, repeat_penalty: float) -> None: ...

def choose(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], temperature: float, top_k: int, top_p: float, min_p: float, seed: int, choice: int, position: int, absent: bool = False, adjustment: Adjustment | None = None) -> int:
    """
    The token that pilotfish.sampling.choose gives; the parameters must be valid.
    """

def adjust(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], adjustment: Adjustment, absent: bool = False) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]:
    """A copy of the row, adjusted."""

def logprobs(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], token: int, count: int, absent: bool = False) -> tuple[float, list[tuple[int, float]]]:
    """
    log(softmax(logits)) of a token, and (id, log-probability) of the `count` likeliest.
    """

def argmax(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], absent: bool = False) -> int:
    """The id with the largest logit, the lowest one on a tie."""

def margin(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], absent: bool = False) -> float:
    """The largest logit minus the second largest."""

def probability(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], token: int, absent: bool = False) -> float:
    """softmax(logits)[token] at temperature 1."""

def digest(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int:
    """A 64-bit hash of the row's bits."""

def philox4x32(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Philox4x32-10."""

def exp64(x: float) -> float:
    """exp(max(x, -708)) for x <= 709."""

def log64(x: float) -> float:
    """log(x) for normal, positive, finite x."""

def isas() -> list[str]:
    """Instruction sets this machine and build have, best first."""

def read_bandwidth(bytes: int, threads: int, repeats: int) -> float:
    """Bytes a second of the best of so many reads of memory."""

def multiply(weight: Weight, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], isa: str, tile: int, float_activations: bool = False) -> NDArray[numpy.float32]:
    """
    x (tokens, columns) times the packed matrix, in tiles of so many tokens: (tokens, rows).
    """

def quantize(x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], isa: str) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32]]:
    """Activation codes and scales of x."""

def rms_norm(x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], eps: float, isa: str) -> NDArray[numpy.float32]:
    """RMS norm of one row."""

def silu_mul(gate: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], up: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], isa: str) -> NDArray[numpy.float32]:
    """silu(gate) * up."""

def gelu_mul(gate: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], up: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], isa: str) -> NDArray[numpy.float32]:
    """gelu(gate) * up, gelu by tanh."""

def packed_bytes(type: int, rows: int, columns: int) -> int:
    """Bytes that a packed matrix takes in an arena."""

class Arena:
    """One block of memory for packed weights."""

    def __init__(self, bytes: int) -> None: ...

class Weight:
    """A matrix in the packed layout."""

    def __init__(self, arena: Arena, type: int, rows: int, columns: int) -> None: ...

    def pack(self, file: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], row_map: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, threads: int, first: int = 0, count: int | None = None) -> None:
        """
        Pack rows of the file's bytes, whole groups of 16; row i comes from row row_map[i].
        """

    def round_from(self, source: Weight, first: int, threads: int) -> None:
        """
        Fill rows from `first` on, whole groups of 16, with those of a source of any type, rounded to Q4_0.
        """

    def gather(self, row: int) -> NDArray[numpy.float32]:
        """One row as floats."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

class Pages:
    """KV pages of 64 positions."""

    def __init__(self, layers: int, kv_heads: int, head: int) -> None: ...

    def allocate(self) -> int:
        """A new page's number."""

    def reserve(self, count: int) -> None:
        """
        Take the memory of so many pages in all, those that are there included.
        """

    @property
    def reserved(self) -> int:
        """Pages whose memory is taken."""

    @property
    def full(self) -> bool:
        """Whether the next page takes a new slab of memory."""

    @property
    def slab_pages(self) -> int:
        """Pages that a slab holds."""

    def copy(self, source: int, target: int) -> None: ...

    @property
    def page_bytes(self) -> int: ...

    @property
    def count(self) -> int: ...

class Program:
    """The ops of a model; see program.h."""

    def __init__(self, isa: str, pages: Pages, float_activations: bool) -> None: ...

    def buffer(self, width: int) -> int: ...

    def activations(self, width: int) -> int: ...

    def embed(self, table: Weight, scale: float, out: int) -> None: ...

    def rope_table(self, base: float, dimensions: int, factors: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], magnitude: float) -> int: ...

    def norm(self, source: int, weight: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], eps: float, out: int, wanted_only: bool) -> None: ...

    def add_norm(self, source: int, weight: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], eps: float, out: int) -> None: ...

    def linear(self, source: int, parts: Sequence[tuple[Weight, Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, int]], out: int, add: bool, wanted_only: bool, name: str) -> None: ...

    def rope_and_cache(self, qkv: int, heads: int, layer: int, table: int, query_scale: float, norms: tuple[Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], float] | None) -> None:
        """`norms`: weights of the queries' and the keys' norm, and epsilon."""

    def attention(self, qkv: int, heads: int, layer: int, window: int, out: int) -> None: ...

    def gated(self, source: int, gate: Weight, up: Weight, gelu: bool, out: int) -> None: ...

    def set_logits(self, out: int) -> None: ...

    def restricted_head(self, source: int, weight: Weight, out: int) -> None:
        """
        Logits of the wanted rows, by a matrix of which a pass reads some groups of 16 rows only: all, at first.
        """

    def set_head_groups(self, groups: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Which groups of ids, ascending, the restricted head computes from now on; logits of others are -inf.
        """

    def run(self, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], bases: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], tables: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], wanted: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], ancestors: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, threads: int) -> bool:
        """Run a pass; False if it was cancelled."""

    def reserve(self, rows: int, wanted: int, context: int, threads: int) -> None:
        """Take the memory that passes of that size need."""

    @property
    def work_bytes(self) -> int:
        """Memory of what passes work on."""

    def seconds(self) -> list[float]:
        """Seconds of the last pass by op."""

    def op_parts(self) -> list[str]:
        """By op, what its time is counted as."""

    def cancel(self) -> None:
        """End the pass that runs or, if none does, the next one."""

    def uncancel(self) -> bool:
        """Take back what no pass has ended for; whether there was any."""

    def argmax(self, row: int) -> int: ...

    def margin(self, row: int) -> float: ...

    def choose(self, row: int, temperature: float, top_k: int, top_p: float, min_p: float, seed: int, choice: int, position: int, adjustment: Adjustment | None = None) -> int: ...

    def logprobs(self, row: int, token: int, count: int) -> tuple[float, list[tuple[int, float]]]: ...

    def probability(self, row: int, token: int) -> float: ...

    def digest(self, row: int) -> int: ...

    def logits(self, row: int) -> NDArray[numpy.float32]: ...

    def read(self, buffer: int, row: int) -> NDArray[numpy.float32]:
        """A row of a buffer after the last pass, for tests and learned drafters."""
