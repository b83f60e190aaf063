"""Answering many requests on one engine: they share passes, and what is cached of common beginnings.

Token ids only: no text, no network. See docs/serving.md.
"""
