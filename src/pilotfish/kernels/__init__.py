"""C++ kernels and their bindings."""
