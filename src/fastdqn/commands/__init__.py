"""The implementations of the command-line commands."""
