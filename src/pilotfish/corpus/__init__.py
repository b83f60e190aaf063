"""An index over a folder of text or code, for drafts from what stands there: built once, memory-mapped."""
