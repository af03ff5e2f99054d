"""Replay: rows in (ring), which rows (sampler), rows to batch (window), how many updates are earned (ratio)."""
