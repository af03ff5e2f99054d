"""Faster parts that take the place of the reference in the folder above (switches)."""
