"""Our own engine: GGUF weights, packed for the machine, kernels in C++."""

from pilotfish.engines.native.engine import NativeEngine

__all__ = ["NativeEngine"]
