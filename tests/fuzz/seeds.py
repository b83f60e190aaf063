"""The valid files that the fuzzer starts from: whole, small models of random weights."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gguf_files import GgufFile, Tensor, Typed
from oracle.quants import block_shape, random_blocks
from text.small_vocabulary import ID, TOKENS, metadata

_CODES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "BF16": 30}

CHATML = (
    "{%- if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% else %}"
    "{% set rest = messages %}{% endif -%}{% for m in rest %}"
    "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] | trim + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
ALTERNATING = (
    "{{ bos_token }}{% set ns = namespace(last='none') %}{% for m in messages %}"
    "{% if m.role == ns.last %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% set ns.last = m.role %}{% if m.role == 'user' %}{{ '[INST] ' ~ m.content ~ ' [/INST]' }}"
    "{% else %}{{ m.content | replace('a', 'b') }}{{ eos_token }}{% endif %}{% endfor %}"
)
TOOLS = (
    "{% macro show(tool) %}{{ tool | tojson(indent=2) }}{% endmacro %}"
    "{% if tools %}{% for t in tools %}{{ show(t) }}{% endfor %}{% endif %}"
    "{% for m in messages if m.content is string %}{{ loop.index0 }}: "
    "{{ m.content.split('\\n')[0].upper() }}{{ strftime_now('%d %b %Y') }}{% endfor %}"
)
TEMPLATES = (CHATML, ALTERNATING, TOOLS)


@functools.cache
def seeds() -> tuple[GgufFile, ...]:
    """Return the files; they are not to be changed."""
    return (
        _model("llama", 64, "F32", "F16", CHATML),
        _model("llama", 64, "Q4_0", "Q8_0", TOOLS, layers=2),
        _model("llama", 64, "Q8_0", "Q5_0", ALTERNATING, tied=True),
        _model("qwen2", 64, "Q4_1", "BF16", CHATML, tied=True),
        _model("qwen2", 256, "Q4_K", "Q6_K", None, tied=True),
        _no_model(),
    )


def _model(
    family: str,
    width: int,
    kind: str,
    embedding_kind: str,
    template: str | None,
    *,
    layers: int = 1,
    tied: bool = False,
) -> GgufFile:
    rng = np.random.default_rng(width + layers)
    kv_width, mlp_width, heads = width // 2, width, 2
    keys: dict[str, Any] = {
        "context_length": 256,
        "block_count": layers,
        "embedding_length": width,
        "feed_forward_length": mlp_width,
        "attention.head_count": heads,
        "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10_000.0,
    }
    entries: list[tuple[str | bytes, Any]] = [("general.architecture", family), ("general.name", "Tiny é")]
    entries += [(f"{family}.{key}", value) for key, value in keys.items()]
    for key, value in metadata().items():
        is_kinds = key.endswith("token_type")
        entries.append((key, Typed("i32", value) if is_kinds else value))
    if template is not None:
        entries.append(("tokenizer.chat_template", template))
    entries.append(("tokenizer.ggml.padding_token_id", ID["<|endoftext|>"]))

    def matrix(name: str, rows: int, columns: int, of: str) -> Tensor:
        raw = random_blocks(of, rows, columns, rng, std=columns**-0.5)
        assert raw.size == rows * columns // block_shape(of)[0] * block_shape(of)[1]
        return Tensor(name, (columns, rows), data=raw.tobytes(), code=_CODES[of])

    def vector(name: str, size: int, mean: float) -> Tensor:
        return Tensor(name, (size,), data=rng.normal(mean, 0.2, size).astype(np.float32).tobytes())

    tensors = [matrix("token_embd.weight", len(TOKENS), width, embedding_kind)]
    for layer in range(layers):
        block = f"blk.{layer}."
        tensors.append(vector(block + "attn_norm.weight", width, 1))
        for part, rows in (("q", width), ("k", kv_width), ("v", kv_width)):
            tensors.append(matrix(block + f"attn_{part}.weight", rows, width, kind))
            if family == "qwen2":
                tensors.append(vector(block + f"attn_{part}.bias", rows, 0))
        tensors += [
            matrix(block + "attn_output.weight", width, width, kind),
            vector(block + "ffn_norm.weight", width, 1),
            matrix(block + "ffn_gate.weight", mlp_width, width, kind),
            matrix(block + "ffn_up.weight", mlp_width, width, kind),
            matrix(block + "ffn_down.weight", width, mlp_width, kind),
        ]
    tensors.append(vector("output_norm.weight", width, 1))
    if not tied:
        tensors.append(matrix("output.weight", len(TOKENS), width, embedding_kind))
    return GgufFile(entries, tensors)


def _no_model() -> GgufFile:
    """Return a file with every type of value, and tensors of one to four dimensions."""
    entries: list[tuple[str | bytes, Any]] = [("general.architecture", "odd")]
    entries += [
        (f"a.{kind}", Typed(kind, 1)) for kind in ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")
    ]
    entries += [
        ("a.f32", 0.5),
        ("a.f64", Typed("f64", 0.1)),
        ("a.bool", True),
        ("a.text", "häßlich 鱼 🐟"),
        ("a.strings", ["", "x", "Ġthe"]),
        ("a.bools", Typed("bool", [True, False])),
        ("a.nested", [[Typed("u8", 1)], [Typed("u8", 2), Typed("u8", 3)]]),
        ("general.alignment", 64),
    ]
    tensors = [Tensor("norm", (7,)), Tensor("cube", (2, 3, 4), "F16"), Tensor("four", (256, 1, 2, 1), "Q4_K")]
    return GgufFile(entries, tensors, alignment=64)
