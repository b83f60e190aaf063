"""How far each model family is from the transformers library's, on random models: `make references`.

The library's logits, in float64, come from `transformers_models.py`, which needs an environment of its own.
Here its weights are written as GGUF files as converters do it, and compared are

- `oracle`: the tests' own reference in float64, which the engine is tested against everywhere else;
- `engine`: pilotfish.

For each: `error`, the largest over positions of |difference| / |logits|, and `kl_mean` and `kl_max`, the
divergence of the distributions in nats. What is left in the oracle is the library's own float32 (norms,
angles, softmax); in the engine also keys and values as float16 and, for matrices of 8 bits a weight, int8
activations.
Usage::

    python benchmarks/references.py PYTHON [--out docs/results/references.json]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from pilotfish import __version__
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.processor import cpu_name

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from oracle.reference import Reference  # noqa: E402

CONTEXT = 200
BOUNDS = {
    ("oracle", "f32"): (2e-5, 1e-9),
    ("oracle", "q8_0"): (2e-5, 1e-9),
    ("engine", "f32"): (3e-3, 1e-6),
    ("engine", "q8_0"): (0.1, 1e-3),
}
"""Largest `error` and `kl_mean`."""

_FAMILIES = {"gemma3_text": "gemma3", "mistral": "llama"}
"""`general.architecture` by the library's model type, where the names differ."""

_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    **{f"self_attn.{part}_norm": f"attn_{part}_norm" for part in "qk"},
}
_GEMMA_LAYER = {
    **_LAYER,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_GLOBAL = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}

Floats = NDArray[np.floating[Any]]


def write_gguf(path: Path, folder: Path) -> Path:
    """Write a model of the library's, from its folder, as converters do."""
    config = json.loads((folder / "config.json").read_text())
    weights = np.load(folder / "weights.npz")
    family = _FAMILIES.get(config["model_type"], config["model_type"])
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(head)
    writer.add_value_length(head)
    _write_rope(writer, family, config, head)
    if family in {"gemma3", "phi3"}:
        writer.add_sliding_window(config["sliding_window"] or 0)
    for name in weights.files:
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        values = weights[name]
        if family == "llama" and ".q_proj." in name:
            values = _interleaved(values, config["num_attention_heads"])
        if family == "llama" and ".k_proj." in name:
            values = _interleaved(values, config["num_key_value_heads"])
        if family == "gemma3" and "norm" in name:
            values = values + np.float32(1)
        if values.ndim == 2 and folder.suffix == ".q8_0":
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(gguf_name(name, family), gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name, family), np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str, family: str) -> str:
    """Return what a tensor of the library's is called in a file."""
    base, leaf = name.rsplit(".", 1)
    if base in _GLOBAL:
        return f"{_GLOBAL[base]}.{leaf}"
    _, _, layer, part = base.split(".", 3)
    return f"blk.{layer}.{(_GEMMA_LAYER if family == 'gemma3' else _LAYER)[part]}.{leaf}"


def _interleaved(weights: Floats, heads: int) -> Floats:
    """Put the rows that rope rotates together side by side."""
    by_half = weights.reshape(heads, 2, -1, *weights.shape[1:])
    return by_half.swapaxes(1, 2).reshape(weights.shape)


def _write_rope(writer: gguf.GGUFWriter, family: str, config: dict[str, Any], head: int) -> None:
    rope = config["rope_parameters"]
    if family == "gemma3":
        writer.add_rope_freq_base(rope["full_attention"]["rope_theta"])
        return
    writer.add_rope_freq_base(rope["rope_theta"])
    if family in {"llama", "phi3"}:
        writer.add_rope_dimension_count(head)
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(rope, head).astype(np.float32))
    if rope["rope_type"] == "longrope":
        first = rope["original_max_position_embeddings"]
        longer = config["max_position_embeddings"] / first
        writer.add_rope_scaling_orig_ctx_len(first)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(longer) / math.log(first)))
        for kind in ("short", "long"):
            factors = np.array(rope[f"{kind}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{kind}.weight", factors)


def llama3_factors(rope: dict[str, Any], head: int) -> NDArray[np.float64]:
    """Return what Llama 3.1 divides angles by: 1 for short waves, `factor` for long ones, a ramp between."""
    turns = rope["rope_theta"] ** (-np.arange(0, head, 2) / head) / (2 * np.pi)  # by position
    seen = rope["original_max_position_embeddings"] * turns
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    share = np.clip((seen - low) / (high - low), 0, 1)
    factors: NDArray[np.float64] = 1 / ((1 - share) / rope["factor"] + share)
    return factors


def distance(got: Floats, want: Floats) -> dict[str, float]:
    """Return `error`, `kl_mean` and `kl_max` of rows of logits."""
    error = np.linalg.norm(got - want, axis=1) / np.linalg.norm(want, axis=1)
    log_got, log_want = (x - np.logaddexp.reduce(x, axis=1, keepdims=True) for x in (got, want))
    kl = (np.exp(log_want) * (log_want - log_got)).sum(axis=1)
    figures = {"error": error.max(), "kl_mean": kl.mean(), "kl_max": kl.max()}
    return {name: float(f"{value:.2e}") for name, value in figures.items()}


def compare(folder: Path, work: Path) -> dict[str, dict[str, float]]:
    """Return the distances of one case."""
    path = write_gguf(work / "model.gguf", folder)
    tokens = [int(token) for token in np.load(folder / "tokens.npy")]
    want = np.load(folder / "logits.npy")
    engine = NativeEngine.load(path, context=CONTEXT)
    rows = engine.forward([Chunk(engine.open(), tokens, len(tokens))])
    got = np.stack([rows.logits(i) for i in range(len(tokens))]).astype(np.float64)
    return {
        "oracle": distance(Reference(path, context=CONTEXT).logits(tokens), want),
        "engine": distance(got, want),
    }


def main() -> None:
    """Compare all cases; exit code 1 if one is too far away."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", help="a Python that has torch and transformers")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    far = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        command = [arguments.python, HERE / "transformers_models.py", work / "models"]
        subprocess.run(command, check=True)  # noqa: S603 - the caller's own Python
        cases: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
        for folder in sorted(path for path in (work / "models").iterdir() if path.is_dir()):
            case, kind = folder.stem, folder.suffix[1:]
            found = cases.setdefault(case, {})[kind] = compare(folder, work)
            for who, figures in found.items():
                print(f"{case:20} {kind:5} {who:7} {figures}")
                most_error, most_kl = BOUNDS[who, kind]
                if not (figures["error"] <= most_error and figures["kl_mean"] <= most_kl):
                    far.append(f"{case} {kind} {who}")
        result = {
            "kind": "references",
            "schema": 1,
            "version": __version__,
            "cpu": cpu_name(),
            "isa": engine_isa(),
            "libraries": json.loads((work / "models" / "info.json").read_text()),
            "cases": cases,
        }
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    if far:
        sys.exit(f"too far from the reference: {', '.join(far)}")


def engine_isa() -> str:
    """Return the instruction set that the engine uses here."""
    from pilotfish.kernels import _kernels  # noqa: PLC0415

    return str(_kernels.isas()[0])


if __name__ == "__main__":
    main()
