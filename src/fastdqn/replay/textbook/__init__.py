"""Replay as in textbooks: transitions are built when they are stored."""
