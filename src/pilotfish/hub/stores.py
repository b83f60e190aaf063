"""Every model on this machine that can be named: in our cache, and in those of other programs."""

from __future__ import annotations

from pilotfish.hub import hf_cache, llama_cpp, ollama
from pilotfish.hub.cache import list_cached
from pilotfish.hub.found import OURS, Found
from pilotfish.hub.pulled import pulled
from pilotfish.hub.registry import REGISTRY


def models_here() -> list[Found]:
    """Return them store by store, ours first: the registry's in its order, others by name."""
    named = [
        Found(cached.name, OURS, cached.path, cached.size, REGISTRY[cached.name].sha256)
        for cached in list_cached()
    ]
    return [
        *named,
        *(model.found() for model in pulled()),
        *(model.found() for model in hf_cache.models()),
        *ollama.models(),
        *llama_cpp.models(),
    ]
