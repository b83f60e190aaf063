"""Puts another build of the kernels in the place of the installed one, in this process and those it starts.

`make sanitize` has this folder on PYTHONPATH, so that Python imports this module, and names the build.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

KERNELS = "pilotfish.kernels._kernels"


class OtherKernels:
    """Finds the module at the path in SANITIZED_KERNELS."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec for the one module; None leaves others to the other finders."""
        path = os.environ.get("SANITIZED_KERNELS")
        if name != KERNELS or not path:
            return None
        return importlib.util.spec_from_file_location(name, path)


sys.meta_path.insert(0, OtherKernels)
