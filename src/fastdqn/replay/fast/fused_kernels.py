"""The kernels of fused_draw.py, compiled by Triton when they are first called. device_window.py is the reference."""

import triton
import triton.language as tl
from torch import Tensor

from fastdqn.replay.ring import FIRST, TAIL, TERMINAL
from fastdqn.replay.sampler import CANDIDATES

ROWS, WORDS_AT_ONCE = 64, 1024  # per program: rows of the batch, words of a frame


def count_starts(W: Tensor, ends: Tensor, T: int, stack: int, n_step: int) -> None:
    """Fills `ends` with the running sum of valid starts over the lanes."""
    lanes = len(W)
    _count_starts[(1,)](W, ends, lanes, T, stack, n_step, triton.next_power_of_2(lanes))


def choose(
    given: tuple[Tensor, ...],
    filled: tuple[Tensor, ...],
    *,
    T: int,
    stack: int,
    n_step: int,
    gamma: float,
    clip_rewards: bool,
    drawn: bool = False,
) -> None:
    """The rows of a batch: what device_window.draw and the first half of device_window.window do."""
    batch_size, lanes = len(filled[0]), len(given[0])
    _choose[(triton.cdiv(batch_size, ROWS),)](
        *given, *filled, batch_size, lanes, T, gamma, stack, n_step, clip_rewards, drawn, CANDIDATES, lanes.bit_length(),
        int(FIRST), int(TERMINAL), int(TAIL), ROWS, enable_fp_fusion=False,
    )  # fmt: skip  # fusion would round once where torch rounds twice


def copy_frames(obs: Tensor, slots: Tensor, states: Tensor, frame_words: int) -> None:
    batch_size, _, stack = slots.shape
    grid = (slots.numel(), triton.cdiv(frame_words, WORDS_AT_ONCE))
    _copy_frames[grid](obs, slots, states, batch_size, frame_words, stack, WORDS_AT_ONCE)


@triton.jit
def _count_starts(W, ends, lanes, T, stack, n_step, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    inside = lane < lanes
    heads = tl.load(W + lane, inside, 0)
    low = tl.maximum(heads - T + stack - 1, 0)
    count = tl.where(inside, tl.maximum(heads - n_step - low, 0), 0)
    tl.store(ends + lane, tl.cumsum(count, 0), inside)


@triton.jit
def _mixed(word):
    """`splitmix64`, as counter_rng.mix: words are unsigned here, so a shift brings in zeros."""
    word = word + 0x9E3779B97F4A7C15
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB
    return word ^ (word >> 31)


@triton.jit
def _choose(
    W, flags, reward, action, ends, key, calls,
    slots, index, out_action, out_returns, out_discount, out_weight,
    batch_size, lanes, T, gamma, STACK: tl.constexpr, N_STEP: tl.constexpr, CLIP: tl.constexpr, DRAWN: tl.constexpr,
    CANDIDATES: tl.constexpr,
    HALVINGS: tl.constexpr, FIRST: tl.constexpr, TERMINAL: tl.constexpr, TAIL: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    b = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = b < batch_size
    if DRAWN:
        chosen_lane, chosen_row = tl.load(index + 2 * b, inside, 0), tl.load(index + 2 * b + 1, inside, 0)
    else:
        total = tl.load(ends + lanes - 1).to(tl.uint64)
        seed = _mixed(tl.load(key).to(tl.uint64) + tl.load(calls).to(tl.uint64))
        chosen_lane, chosen_row = tl.zeros((ROWS,), tl.int64), tl.zeros((ROWS,), tl.int64)
        found = tl.zeros((ROWS,), tl.int1)
        for candidate in tl.static_range(CANDIDATES):
            word = _mixed(seed + (candidate * batch_size + b).to(tl.uint64))
            number = (word % total).to(tl.int64)
            lane, above = tl.zeros((ROWS,), tl.int64), tl.zeros((ROWS,), tl.int64) + lanes
            for _ in tl.static_range(HALVINGS):  # the first lane whose starts end beyond the number
                middle = (lane + above) // 2
                beyond = tl.load(ends + tl.minimum(middle, lanes - 1)) > number
                lane, above = tl.where(beyond | (lane >= above), lane, middle + 1), tl.where(beyond, middle, above)
            head = tl.load(W + lane)
            low = tl.maximum(head - T + STACK - 1, 0)
            count = tl.maximum(head - N_STEP - low, 0)
            row = low + number - (tl.load(ends + lane) - count)
            usable = (tl.load(flags + lane * T + row % T) & TAIL) == 0
            first_look = candidate == 0
            take = (usable & (found == 0)) | first_look
            chosen_lane, chosen_row = tl.where(take, lane, chosen_lane), tl.where(take, row, chosen_row)
            found = found | usable
        tl.store(index + 2 * b, chosen_lane, inside)
        tl.store(index + 2 * b + 1, chosen_row, inside)
        tl.store(out_weight + b, found.to(tl.float32), inside)
    base = chosen_lane * T
    tl.store(out_action + b, tl.load(action + base + chosen_row % T), inside)

    returns, discount = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32) + 1.0
    steps, running = tl.zeros((ROWS,), tl.int64), tl.zeros((ROWS,), tl.int1) == 0
    for k in tl.static_range(N_STEP):
        slot = base + (chosen_row + k) % T
        flag, gain = tl.load(flags + slot), tl.load(reward + slot)
        if CLIP:
            gain = tl.minimum(tl.maximum(gain, -1.0), 1.0)
        running = running & ((flag & TAIL) == 0)
        returns = returns + tl.where(running, discount * gain, 0.0)
        discount = tl.where(running, discount * gamma, discount)
        steps = steps + running.to(tl.int64)
        terminal = running & ((flag & TERMINAL) != 0)
        discount = tl.where(terminal, 0.0, discount)
        running = running & (terminal == 0)
    tl.store(out_returns + b, returns, inside)
    tl.store(out_discount + b, discount, inside)

    for which in tl.static_range(2):
        newest, foreign = chosen_row + which * steps, tl.zeros((ROWS,), tl.int1)
        for back in tl.static_range(STACK):  # from the newest frame: older ones of another game are zero
            slot = base + (newest - back + T) % T
            tl.store(slots + (2 * b + which) * STACK + STACK - 1 - back, tl.where(foreign, -1, slot), inside)
            foreign = foreign | ((tl.load(flags + slot) & FIRST) != 0)


@triton.jit
def _copy_frames(obs, slots, states, batch_size, frame_words, STACK: tl.constexpr, WORDS: tl.constexpr):
    number = tl.program_id(0)
    b, which, place = number // (2 * STACK), number // STACK % 2, number % STACK
    slot = tl.load(slots + number)
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    inside = word < frame_words
    frame = tl.load(obs + slot * frame_words + word, inside & (slot >= 0), 0)
    target = ((which * batch_size + b) * STACK + place).to(tl.int64) * frame_words
    tl.store(states + target + word, frame, inside)
