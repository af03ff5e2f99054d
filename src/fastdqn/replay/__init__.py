"""Replay: storing rows (ring), choosing rows (sampler), rows to batch (window), how many updates are due (ratio)."""
