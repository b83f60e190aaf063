"""Random models of every family and their logits, by the transformers library.

Runs by itself under a Python that has torch and transformers; pilotfish's own environment needs neither::

    python transformers_models.py FOLDER

FOLDER receives `info.json` (versions) and for each case of `CASES`, plainly and with all matrices rounded to
8 bits a weight (as Q8_0 files hold them), a folder with `config.json`, `weights.npz`, `tokens.npy` and
`logits.npy` (float64, a row for each token).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import transformers

TOKENS = 200
_SMALL = {
    "vocab_size": 320,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "attn_implementation": "eager",
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
_SHORT = [1 + 0.01 * i for i in range(16)]
_LONG = [1 + 1.7 * i for i in range(16)]


def _longrope(original: int) -> dict[str, object]:
    return {
        "num_key_value_heads": 4,
        "original_max_position_embeddings": original,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": _SHORT,
            "long_factor": _LONG,
            "original_max_position_embeddings": original,
        },
    }


CASES: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("Llama", {}),
    "llama3-rope": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "mistral": ("Mistral", {"head_dim": 64, "sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 64}),
    "gemma3": (
        "Gemma3",
        {
            "num_hidden_layers": 7,
            "num_key_value_heads": 1,
            "head_dim": 64,
            "query_pre_attn_scalar": 64,
            "sliding_window": 48,
            "tie_word_embeddings": True,
        },
    ),
    "phi3": ("Phi3", {"sliding_window": 60}),
    "phi3-short-factors": ("Phi3", _longrope(256)),
    "phi3-long-factors": ("Phi3", _longrope(128)),
}


def random_model(kind: str, changes: dict[str, object], *, rounded: bool) -> torch.nn.Module:
    """Return a model whose logits are about 1 in size, in float64."""
    config_name = "Gemma3TextConfig" if kind == "Gemma3" else f"{kind}Config"
    config = getattr(transformers, config_name)(**{**_SMALL, **changes})
    model = getattr(transformers, f"{kind}ForCausalLM")(config).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            values = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            if weight.dim() == 2:
                values *= weight.shape[1] ** -0.5
                values = _rounded(values) if rounded else values.float()
            else:  # a norm of gemma is 1 + weight
                mean = 0.0 if name.endswith("bias") or kind == "Gemma3" else 1.0
                values = (0.2 * values).float().double() + mean
                values = values.float()
            weight.copy_(values)
    return model


def _rounded(weights: torch.Tensor) -> torch.Tensor:
    """Round 32 weights of a row at a time to a float16 scale times -127..127."""
    blocks = weights.reshape(weights.shape[0], -1, 32)
    scales = (blocks.abs().amax(-1, keepdim=True) / 127).half().double()
    return (torch.round(blocks / scales).clamp(-127, 127) * scales).reshape(weights.shape)


def main() -> None:
    """Write all cases, as the module docstring says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    tokens = np.random.default_rng(2).integers(0, int(str(_SMALL["vocab_size"])), TOKENS)
    for name, (kind, changes) in CASES.items():
        for rounded in (False, True):
            model = random_model(kind, changes, rounded=rounded)
            with torch.no_grad():
                logits = model(torch.tensor(tokens)[None], use_cache=False).logits[0]
            to = folder / (f"{name}.q8_0" if rounded else f"{name}.f32")
            to.mkdir(parents=True)
            np.savez(to / "weights.npz", **{k: v.float().numpy() for k, v in model.state_dict().items()})
            np.save(to / "tokens.npy", tokens)
            np.save(to / "logits.npy", logits.double().numpy())
            (to / "config.json").write_text(json.dumps(model.config.to_dict(), default=str))
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    (folder / "info.json").write_text(json.dumps(versions))


if __name__ == "__main__":
    main()
