"""Whether a model would load, told from its header and its small tensors alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pilotfish.engines.native.builder import Builder
from pilotfish.engines.native.config import Config
from pilotfish.engines.native.container import Container
from pilotfish.engines.native.families import family_named
from pilotfish.engines.native.families.decoder import attention_shape
from pilotfish.kernels import _kernels


class _DryBuilder(Builder):
    """Builds the program without packing a matrix; memory for them is reserved, but never touched."""

    def _pack(self, weight: _kernels.Weight, name: str, rows_from: NDArray[np.int32] | None) -> None:
        del weight, name, rows_from


def check_runs(container: Container) -> None:
    """Build a model's program without its weights.

    Raises
    ------
    ModelError
        Loading it would fail with the same error: a key, tensor or type that its family does not use.
    MemoryError
        The system has no room even to reserve for its weights.
    """
    config = Config(container.metadata)
    build = family_named(config.architecture)
    config.integer("context_length", most=1 << 30)
    builder = _DryBuilder(
        container,
        config,
        attention_shape(config),
        isa=_kernels.isas()[0],
        context=1,
        threads=1,
        float_activations=False,
        progress=lambda _share: None,
    )
    build(builder)
    config.refuse_unread()
    builder.refuse_unused()
