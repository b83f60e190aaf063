"""Tensor types that the kernels read, with ggml's numbers."""

from __future__ import annotations

from pilotfish.errors import UnsupportedError

KERNEL_TYPES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "Q2_K": 10,
    "Q3_K": 11,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
    "IQ4_NL": 20,
    "IQ4_XS": 23,
    "BF16": 30,
    "MXFP4": 39,
}


def not_read(tensor: str, kind: str) -> UnsupportedError:
    """Return the error for a tensor whose type the kernels don't read."""
    return UnsupportedError(
        f"the tensor {tensor} has type {kind}, which is not supported",
        "take a file of the model in another quantization, such as Q4_K_M or IQ4_XS;"
        f" supported types are {', '.join(KERNEL_TYPES)}",
    )
