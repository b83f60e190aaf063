"""Where models come from, and the folder they are kept in.

`terminal_progress`, which shows a pull on stderr, is in `pilotfish.hub.rich_progress`: it needs a library
that only the command line needs.
"""

from pilotfish.hub.cache import Cached, cache_dir, cached_path, list_cached
from pilotfish.hub.progress import Progress, SilentProgress
from pilotfish.hub.pull import Source, pull
from pilotfish.hub.registry import DEFAULT_MODEL, REGISTRY, Entry
from pilotfish.hub.resolve import ModelRef, resolve

__all__ = [
    "DEFAULT_MODEL",
    "REGISTRY",
    "Cached",
    "Entry",
    "ModelRef",
    "Progress",
    "SilentProgress",
    "Source",
    "cache_dir",
    "cached_path",
    "list_cached",
    "pull",
    "resolve",
]
