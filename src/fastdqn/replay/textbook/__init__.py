"""Replay as the books have it: transitions put together when they are stored."""
