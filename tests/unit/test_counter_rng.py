"""The rng that a device throws: the numbers of snake_rules.draw, uniform, and with a state of two integers."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from fastdqn.device.counter_rng import CounterRng, fine_fraction, fraction, mix, remainder
from fastdqn.env import snake_rules

words = st.integers(0, 2**64 - 1)


def signed(word: int) -> torch.Tensor:
    return torch.from_numpy(np.array([word], np.uint64).view(np.int64))


@given(word=words)
def test_mixing_is_that_of_the_snake(word):
    assert int(mix(signed(word))) % 2**64 == snake_rules._mix(word)


@given(word=words, choices=st.integers(1, 2**40))
def test_the_remainder_is_the_unsigned_one(word, choices):
    assert int(remainder(signed(word), choices)) == word % choices
    assert int(remainder(signed(word), torch.tensor(choices))) == word % choices


def test_throws_are_uniform_and_never_the_same():
    rng = CounterRng(7)
    first, second = rng.bits(40_000), rng.bits(40_000)
    assert len(set(first.tolist()) & set(second.tolist())) == 0
    for thrown in (first, second):
        assert chisquare(np.bincount(remainder(thrown, 10).numpy())).pvalue > 0.001
        for shares in (fraction(thrown).numpy(), fine_fraction(thrown).numpy()):
            assert shares.min() >= 0.0
            assert shares.max() < 1.0
            assert kstest(shares, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(fraction(first), fraction(second))[0, 1]) < 0.02


@given(word=words)
def test_a_fine_fraction_holds_53_bits(word):
    assert float(fine_fraction(signed(word))) == (word >> 11) / 2**53 < 1.0


def test_seeds_give_other_dice():
    assert not torch.equal(CounterRng(1).bits(8), CounterRng(2).bits(8))
    assert torch.equal(CounterRng(1).bits(8), CounterRng(1).bits(8))


def test_the_state_goes_on_exactly():
    rng, again = CounterRng(3), CounterRng(4)
    for _ in range(5):
        rng.bits(3)
    again.load_state(rng.state())
    assert torch.equal(again.bits(9), rng.bits(9))
