"""`python -m pilotfish` is `pilotfish`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; the entry point of the `pilotfish` script."""
    from pilotfish import signals  # noqa: PLC0415 - before anything large is imported

    signals.handle()
    from pilotfish.cli import main as run  # noqa: PLC0415

    run()


if __name__ == "__main__":
    main()
