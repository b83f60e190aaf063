"""Whether a peer was compiled for this processor: one that was not is slower than it has to be."""

from __future__ import annotations

from pathlib import Path

_LINUX_FLAGS = {
    "avx2": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "avx_vnni": "AVX_VNNI",
    "avx512f": "AVX512",
    "avx512_vnni": "AVX512_VNNI",
    "asimddp": "DOTPROD",
    "i8mm": "MATMUL_INT8",
}
"""What Linux calls features of a processor that decide llama.cpp's speed -> what llama.cpp calls them."""


def unused_features(build: str, cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Return the features that this processor has and llama.cpp was not compiled to use.

    Parameters
    ----------
    build
        llama.cpp's own list: `AVX2 = 1 | FMA = 1`.
    cpuinfo
        Linux's description of the processor; where there is none, nothing is known and the list is empty.
    """
    try:
        text = cpuinfo.read_text(encoding="utf-8")
    except OSError:
        return []
    lists = [line.split(":")[1] for line in text.splitlines() if line.startswith(("flags", "Features"))]
    has = set(lists[0].split()) if lists else set()
    used = {part.split("=")[0].split(":")[-1].strip() for part in build.split("|") if "= 1" in part}
    return [theirs for ours, theirs in _LINUX_FLAGS.items() if ours in has and theirs not in used]
