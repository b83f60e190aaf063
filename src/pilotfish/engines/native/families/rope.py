"""How a file scales its rope: not at all, evenly, or by a factor for each pair."""

from __future__ import annotations

from pilotfish.engines.native.builder import Builder

_FACTORS = "rope_freqs.weight"


def scaled_rope(m: Builder) -> int:
    """Return the rope table that the file asks for.

    - Position interpolation (Chen et al. 2023), `rope.scaling.type` = linear: angles divided by one factor.
    - Llama 3's scaling: angles divided by the factors in the tensor `rope_freqs`, 1 for pairs that turn fast
      and 8 or 32 for those that turn slowly.
    """
    c = m.config
    base = c.real("rope.freq_base", 10_000.0)
    dimensions = c.integer("rope.dimension_count", m.attention_shape.head)
    return m.rope_table(
        base, dimensions, factor=linear_factor(m), factors=_FACTORS if m.has(_FACTORS) else None
    )


def linear_factor(m: Builder) -> float:
    """Return what linear scaling divides angles by, 1 without it."""
    kind = m.config.one_of("rope.scaling.type", ("none", "linear"), "linear")
    factor = m.config.real("rope.scaling.factor", 1.0)
    return factor if kind == "linear" else 1.0
