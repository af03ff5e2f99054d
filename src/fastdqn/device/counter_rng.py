"""A counter-based random number generator: bits are a pure function of (seed, call, position), so
that a CPU, a GPU and a CUDA graph agree.

The mixing function is splitmix64, as in snake_rules.py. The call counter is a tensor: a CUDA graph advances it by itself,
graphs with separate generators share nothing, and the whole state is two integers.
"""

from typing import Any

import torch
from torch import Tensor


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


_STEP, _FIRST, _SECOND = (_signed(word) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def mix(word: Tensor) -> Tensor:
    """Splitmix64 on int64: products wrap like unsigned ones."""
    word = word + _STEP
    word = (word ^ _shifted(word, 30)) * _FIRST
    word = (word ^ _shifted(word, 27)) * _SECOND
    return word ^ _shifted(word, 31)


def _shifted(word: Tensor, bits: int) -> Tensor:
    """Logical right shift: torch's own is arithmetic."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def remainder(word: Tensor, choices: Tensor | int) -> Tensor:
    """The 64 bits read as an unsigned number, modulo `choices`. The bias is below choices / 2**64."""
    return (_shifted(word, 1) % choices * 2 + (word & 1)) % choices


def fraction(word: Tensor) -> Tensor:
    """Uniform in [0, 1) with the 24 bits that a float32 holds."""
    return _shifted(word, 40).to(torch.float32) * 2.0**-24


def fine_fraction(word: Tensor) -> Tensor:
    """Uniform in [0, 1) with the 53 bits that a float64 holds."""
    return _shifted(word, 11).to(torch.float64) * 2.0**-53


class CounterRng:
    """`bits(n)` returns n random 64-bit words; each call returns new ones."""

    def __init__(self, seed: int, device: str | torch.device = "cpu") -> None:
        self.key = mix(torch.tensor(_signed(seed % 2**64), device=device))
        self.calls = torch.zeros((), dtype=torch.int64, device=device)

    def bits(self, count: int) -> Tensor:
        words = mix(mix(self.key + self.calls) + torch.arange(count, device=self.calls.device))
        self.calls += 1
        return words

    def state(self) -> dict[str, Any]:
        return {"key": int(self.key), "throws": int(self.calls)}

    def load_state(self, state: dict[str, Any]) -> None:
        self.key.fill_(state["key"])
        self.calls.fill_(state["throws"])
