"""Measurements and checks over many prompts."""
