"""llama.cpp's server with several slots, as a process of its own; `benchmarks/serve.py --peer` starts it.

Runs under a Python that has `xllamacpp` (llama.cpp with its server, as a wheel)::

    python benchmarks/llama_cpp_server.py MODEL.gguf --slots 8 --threads 2 --context 2048

It prints one JSON line when it listens, with its address, version and build, and ends with its stdin. Its
settings are llama.cpp's defaults, but for the number of slots and of threads, no offloading, no log, and
texts that are not kept: whoever compares speeds asks the same twice.
"""

from __future__ import annotations

import argparse
import json
import sys

import xllamacpp


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048, help="tokens of each slot")
    options = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.n_parallel = options.slots
    params.n_ctx = options.slots * options.context
    params.cont_batching = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.n_gpu_layers = 0
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.port = 0
    params.verbosity = 0
    server = xllamacpp.Server(params)
    about = {
        "url": server.listening_address,
        "version": f"llama.cpp, as in xllamacpp {xllamacpp.__version__}",
        "build": xllamacpp.get_system_info().strip(" |\n"),
    }
    print(json.dumps(about), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
