"""Measuring: the ladder, sweeps, profiles, peers. Every measurement runs in a process of its own."""
