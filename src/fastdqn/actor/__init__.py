"""The actor: plays and explores."""
