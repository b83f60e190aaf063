"""Where models come from, and the folder they are kept in.

`terminal_progress`, which shows a pull on stderr, is in `pilotfish.hub.rich_progress`: it needs a library
that only the command line needs.
"""

from pilotfish.hub.cache import Cached, cache_dir, cached_path, list_cached
from pilotfish.hub.found import Found
from pilotfish.hub.progress import Progress, SilentProgress
from pilotfish.hub.pull import Source, entry_named, pull
from pilotfish.hub.registry import DEFAULT_MODEL, REGISTRY, Entry
from pilotfish.hub.remove import Removal, removal
from pilotfish.hub.resolve import ModelRef, resolve
from pilotfish.hub.stores import models_here

__all__ = [
    "DEFAULT_MODEL",
    "REGISTRY",
    "Cached",
    "Entry",
    "Found",
    "ModelRef",
    "Progress",
    "Removal",
    "SilentProgress",
    "Source",
    "cache_dir",
    "cached_path",
    "entry_named",
    "list_cached",
    "models_here",
    "pull",
    "removal",
    "resolve",
]
