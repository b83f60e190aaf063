"""Each model family against the float64 reference, bit by bit against itself, and what it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from oracle.reference import Reference
from oracle.tiny import FAMILIES, Tiny, of_family, write_tiny
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.errors import FormatError, UnsupportedError
from pilotfish.kernels import _kernels

TOKENS = [int(x) for x in np.random.default_rng(5).integers(0, 97, 110)]
"""More than a page, and more than the windows of the tiny models."""


def all_logits(engine: NativeEngine, tokens: list[int]) -> NDArray[np.float64]:
    rows = engine.forward([Chunk(engine.open(), tokens, len(tokens))])
    return np.stack([rows.logits(i) for i in range(len(tokens))]).astype(np.float64)


def relative(got: NDArray[np.floating], want: NDArray[np.floating]) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


@pytest.mark.parametrize(
    ("family", "kind"), [*((family, "F32") for family in FAMILIES), ("phi3", "Q4_K"), ("qwen3", "Q8_0")]
)
def test_the_float_path_is_the_reference(tmp_path: Path, family: str, kind: str) -> None:
    """Measured 2e-5 to 1e-4: float32 rounding, and keys and values that round to the other float16."""
    width = 256 if kind == "Q4_K" else 128
    path = write_tiny(tmp_path / "tiny.gguf", of_family(family, kind=kind, width=width))
    want = Reference(path, kv_f16=True).logits(TOKENS)
    engine = NativeEngine.load(path, float_activations=True)
    assert relative(all_logits(engine, TOKENS), want) < 3e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_the_int8_path_is_the_reference_with_int8_activations(tmp_path: Path, family: str) -> None:
    """A code on the edge of two may round the other way: closer than the scheme's own error, no more."""
    path = write_tiny(tmp_path / "tiny.gguf", of_family(family, kind="Q8_0", embedding_kind="Q8_0", layers=1))
    want = Reference(path, kv_f16=True, int8_activations=True).logits(TOKENS)
    scheme = relative(want, Reference(path, kv_f16=True).logits(TOKENS))
    assert relative(all_logits(NativeEngine.load(path), TOKENS), want) < scheme / 2


@pytest.mark.parametrize("context", [256, 257])
def test_the_context_chooses_between_short_and_long_rope_factors(tmp_path: Path, context: int) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", of_family("phi3"))
    want = Reference(path, context=context, kv_f16=True).logits(TOKENS)
    other = Reference(path, context=513 - context, kv_f16=True).logits(TOKENS)
    got = all_logits(NativeEngine.load(path, context=context), TOKENS)
    assert relative(got, want) < 3e-4
    assert relative(got, other) > 0.01


def test_linear_scaling_divides_positions_of_global_layers_only(tmp_path: Path) -> None:
    """As in the larger gemma3 models: a factor of 8, not for layers with a window."""
    tiny = of_family("gemma3", layers=6)
    plain = NativeEngine.load(write_tiny(tmp_path / "plain.gguf", tiny))
    path = rewritten(tmp_path / "plain.gguf", {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0})
    want = Reference(path, kv_f16=True).logits(TOKENS)
    got = all_logits(NativeEngine.load(path), TOKENS)
    assert relative(got, want) < 3e-4
    assert relative(got, all_logits(plain, TOKENS)) > 1e-3


@pytest.mark.parametrize("window", [1, 40, 64, 100])
def test_a_token_outside_of_the_window_is_not_seen(tmp_path: Path, window: int) -> None:
    """With one layer, a row depends on the last `window` tokens, on all of them, and on no other."""
    path = write_tiny(tmp_path / "tiny.gguf", of_family("phi3", layers=1, window=window, rope_factors=False))
    engine = NativeEngine.load(path, context=400)
    length = 330
    tokens = [int(x) for x in np.random.default_rng(6).integers(0, 97, length)]
    changed = length - window  # the oldest that the last row sees
    want = digests(engine, [tokens])[-1]
    for at, same in [(changed - 1, True), (0, True), (changed, False)]:
        other = [*tokens]
        other[at] = 96 - other[at] if other[at] != 48 else 0
        assert (digests(engine, [other])[-1] == want) == same, at


def digests(engine: NativeEngine, parts: list[list[int]]) -> list[int]:
    """Evaluate the parts one pass each; hashes of all rows."""
    sequence, found = engine.open(), []
    for part in parts:
        rows = engine.forward([Chunk(sequence, part, len(part))])
        found += [rows.digest(i) for i in range(len(part))]
    engine.close(sequence)
    return found


@pytest.fixture(scope="module", params=["qwen3", "gemma3", "phi3"])
def engines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[NativeEngine]:
    """The same model on every instruction set of this machine, with one thread and with several."""
    shape = {"width": 64, "mlp_width": 64, "heads": 2, "head": 32, "kv_heads": 1}
    tiny = of_family(request.param, kind="Q8_0", embedding_kind="Q8_0", **shape)
    path = write_tiny(tmp_path_factory.mktemp("families") / "tiny.gguf", tiny)
    return [
        NativeEngine.load(path, threads=threads, isa=isa, context=400)
        for isa, threads in [(_kernels.isas()[0], 1), *zip(_kernels.isas(), (3, 2, 1, 2), strict=False)]
    ]


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_bits_agree_across_splits_neighbours_threads_and_instruction_sets(
    engines: list[NativeEngine], data: st.DataObject
) -> None:
    # Long ones cross a border between blocks of attention (256 keys) that no row behind it sees.
    common = [i % 97 for i in range(data.draw(st.sampled_from([0, 60, 240]), label="common"))]
    tokens = common + data.draw(st.lists(st.integers(0, 96), min_size=2, max_size=100), label="tokens")
    want = digests(engines[0], [tokens])
    for engine in engines:
        cuts = sorted(data.draw(st.sets(st.integers(1, len(tokens) - 1), max_size=5), label="cuts"))
        parts = [tokens[a:b] for a, b in zip([0, *cuts], [*cuts, len(tokens)], strict=True)]
        assert digests(engine, parts) == want
        head = data.draw(st.integers(1, len(tokens) - 1), label="head")
        handles = [engine.open() for _ in range(3)]
        texts = [tokens, tokens[::-1], tokens[1:]]
        engine.forward(
            [
                Chunk(h, t[: head - i // 2], 0)
                for i, (h, t) in enumerate(zip(handles, texts, strict=True))
                if t[: head - i // 2]
            ]
        )
        rows = engine.forward(
            [Chunk(h, t[engine.length(h) :], 1) for h, t in zip(handles, texts, strict=True)]
        )
        assert rows.digest(0) == want[-1]
        for handle in handles:
            engine.close(handle)


def test_a_branch_of_a_tree_sees_the_window_of_its_positions(tmp_path: Path) -> None:
    """Two branches behind one text, in one pass, have the logits that each has alone.

    The first has the same bits; keys of the second lie in other slots, and are added in another order.
    """
    path = write_tiny(tmp_path / "tiny.gguf", of_family("phi3", window=9, rope_factors=False))
    engine = NativeEngine.load(path, context=256)
    text, branches = TOKENS[:60], (TOKENS[60:70], TOKENS[80:90])
    want = [all_logits(engine, [*text, *branch])[len(text) :] for branch in branches]
    sequence = engine.open()
    engine.forward([Chunk(sequence, text, 0)])
    program, count = engine.program(engine._passes), len(branches[0])
    table = engine._tables.reserve(sequence, 2 * count).table
    below = [(2 << i) - 1 for i in range(count)]
    finished = program.run(
        np.array([*branches[0], *branches[1]], dtype=np.int32),
        np.array([60 + i for i in range(count)] * 2, dtype=np.int32),
        np.array([2 * count], dtype=np.int32),
        np.array([len(text)], dtype=np.int32),
        np.array(table, dtype=np.int32),
        np.arange(2 * count, dtype=np.int32),
        np.array([*below, *(bits << count for bits in below)], dtype=np.uint64),
        2,
    )
    assert finished
    got = np.stack([program.logits(i) for i in range(2 * count)])
    assert (got[:count] == want[0]).all()
    assert relative(got[count:], want[1]) < 1e-5


def rewritten(
    path: Path, changes: dict[str, object], *, drop: str = "", add: str = "", factor: float | None = None
) -> Path:
    """Write a file again with other keys, with one tensor less or more, or with other rope factors."""
    reader = gguf.GGUFReader(path)
    family = str(reader.fields["general.architecture"].contents())
    out = path.with_name("rewritten.gguf")
    writer = gguf.GGUFWriter(out, family)
    for field in reader.fields.values():
        name = field.name.removeprefix(f"{family}.")
        if field.name.startswith(f"{family}.") and name not in changes:
            writer.add_key_value(field.name, field.contents(), field.types[0])
    for name, value in changes.items():
        kind = {str: "STRING", float: "FLOAT32"}.get(type(value), "UINT32")
        writer.add_key_value(f"{family}.{name}", value, gguf.GGUFValueType[kind])
    for tensor in reader.tensors:
        data = np.array(tensor.data)
        if factor is not None and "rope_f" in tensor.name:
            data[0] = factor
        if tensor.name != drop:
            writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    if add:
        writer.add_tensor(add, np.ones((32, 128), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("qwen3", "rope.scaling.type", "yarn"),
        ("qwen3", "attention.sliding_window", 8),
        ("llama", "rope.scaling.attn_factor", 1.1),
        ("gemma3", "attn_logit_softcapping", 50.0),
        ("gemma3", "attention.sliding_window_pattern", 4),
        ("gemma3", "final_logit_softcapping", 30.0),
        ("phi3", "rope.scaling.type", "longrope"),
    ],
)
def test_a_key_that_changes_the_model_is_named(tmp_path: Path, family: str, key: str, value: object) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", of_family(family, layers=1))
    with pytest.raises(UnsupportedError, match=rf"{family}\.{key}"):
        NativeEngine.load(rewritten(path, {key: value}))


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("qwen3", "blk.1.attn_q_norm.weight"),
        ("gemma3", "blk.0.post_attention_norm.weight"),
        ("gemma3", "blk.1.post_ffw_norm.weight"),
        ("phi3", "blk.0.attn_qkv.weight"),
        ("phi3", "rope_factors_short.weight"),
    ],
)
def test_a_missing_tensor_is_named(tmp_path: Path, family: str, name: str) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", of_family(family, layers=2))
    with pytest.raises(FormatError, match=name.replace(".", r"\.")):
        NativeEngine.load(rewritten(path, {}, drop=name))


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("qwen3", "blk.0.attn_q.bias"),
        ("gemma3", "blk.0.attn_qkv.weight"),
        ("qwen2", "blk.0.attn_q_norm.weight"),
        ("phi3", "blk.0.ffn_gate.weight"),
    ],
)
def test_a_tensor_of_another_family_is_named(tmp_path: Path, family: str, name: str) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", of_family(family, layers=1))
    with pytest.raises(UnsupportedError, match=name.replace(".", r"\.")):
        NativeEngine.load(rewritten(path, {}, add=name))


@pytest.mark.parametrize("family", ["llama", "phi3"])
@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_rope_factors_that_are_no_factors_are_refused(tmp_path: Path, family: str, factor: float) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", of_family(family, layers=1))
    with pytest.raises(UnsupportedError, match=r"rope_f.* has rope factors"):
        NativeEngine.load(rewritten(path, {}, factor=factor))


def test_a_head_of_its_own_size_is_read_from_the_file(tmp_path: Path) -> None:
    """As in Mistral Nemo and qwen3: heads are not a share of the width."""
    tiny = dataclasses.replace(Tiny(), head=96)
    path = write_tiny(tmp_path / "tiny.gguf", tiny)
    want = Reference(path, kv_f16=True).logits(TOKENS)
    assert relative(all_logits(NativeEngine.load(path), TOKENS), want) < 3e-4


@pytest.mark.models
def test_a_real_gemma_is_the_reference(gemma: Path) -> None:
    """Measured 2e-2, of int8 activations; compared at the lowest ids, which has every layer in it."""
    text = [2, 818, 5279, 529, 7001, 563]  # <bos>The capital of France is
    some = slice(0, 4096)
    reference = Reference(gemma, dtype=np.float32, kv_f16=True)
    hidden = reference.hidden([text])[0]
    want = (hidden @ reference._weights("token_embd.weight", some).T).astype(np.float64)
    got = all_logits(NativeEngine.load(gemma, context=512), text)[:, some]
    assert relative(got, want) < 0.06
