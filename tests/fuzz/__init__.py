"""Hostile files: small valid models damaged in many ways, and what must hold for each."""
