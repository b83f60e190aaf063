"""Our own engine: GGUF weights, packed for the machine, kernels in C++."""

from pilotfish.engines.native.engine import DEFAULT_CONTEXT, NativeEngine

__all__ = ["DEFAULT_CONTEXT", "NativeEngine"]
