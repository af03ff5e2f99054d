"""One root seed, one independent stream per purpose, so that adding a consumer never shifts another's numbers."""

import zlib

import numpy as np


def stream(seed: int, purpose: str) -> np.random.Generator:
    """A NumPy generator for one purpose ('explore', 'sample', ...)."""
    return np.random.default_rng(_sequence(seed, purpose))


def integer(seed: int, purpose: str, bits: int = 31) -> int:
    """One integer seed, for consumers that need a number (torch, an environment)."""
    return int(_sequence(seed, purpose).generate_state(1, np.uint64)[0] >> np.uint64(64 - bits))


def lane_seeds(seed: int, purpose: str, lanes: int) -> list[int]:
    """A different 31-bit seed for each lane."""
    words = _sequence(seed, purpose).generate_state(lanes, np.uint64)
    return [int(word >> np.uint64(33)) for word in words]


def _sequence(seed: int, purpose: str) -> np.random.SeedSequence:
    # crc32 and not hash(): Python's string hash changes from process to process
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode())])
