"""Runners place the roles; they hold no learning code."""
