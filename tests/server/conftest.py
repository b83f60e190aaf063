"""What the tests of the server have in common."""

from __future__ import annotations

import os

# As the command does: the tokenizers' own threads would warn whatever is forked after them.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
