"""Runners decide where the roles run; they contain no learning code."""
