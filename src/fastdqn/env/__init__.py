"""Environments: one interface (base), one file per kind."""
