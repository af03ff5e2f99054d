"""Faster replacements for the reference parts in the folder above (switches)."""
