"""The runner `processes`."""
