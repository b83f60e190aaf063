"""Things that propose tokens."""
