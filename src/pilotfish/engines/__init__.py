"""Things that evaluate passes."""
