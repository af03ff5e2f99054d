"""The compiled loops of SnakeLanes. `step_lanes` is the whole of a step; the rest are its parts, for one lane each.

`game` is one record of `snake_lanes.GAME`, `ring` its snake's cells from tail to head, `taken` 1 where a block lies.
"""

from typing import Any

import numpy as np

from fastdqn.device.kernel import kernel


@kernel
def step_lanes(
    start: int,
    stop: int,
    actions: np.ndarray,
    games: np.ndarray,
    ring: np.ndarray,
    taken: np.ndarray,
    neighbours: np.ndarray,
    starts: np.ndarray,
    starting_blocks: int,
    max_steps: int,
    obs: np.ndarray,  # (lanes, 3 * cells): the three planes of each lane in a row
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    first: np.ndarray,
) -> None:
    for lane in range(start, stop):
        game = games[lane]  # a reference: writing to it writes to the array
        first[lane] = game.over == 1
        terminated[lane] = False
        truncated[lane] = False
        reward[lane] = 0.0
        if game.over == 1:
            _start_game(game, ring[lane], taken[lane], neighbours, starts, starting_blocks)
        else:
            outcome = _move(game, actions[lane], ring[lane], taken[lane], neighbours, starting_blocks)
            game.steps += 1
            reward[lane] = outcome
            terminated[lane] = outcome < 0 or game.food < 0
            truncated[lane] = not terminated[lane] and game.steps >= max_steps
            game.over = 1 if terminated[lane] or truncated[lane] else 0
        _paint(game, ring[lane], obs[lane])


@kernel
def repaint(games: np.ndarray, ring: np.ndarray, taken: np.ndarray, obs: np.ndarray) -> None:
    """Works out again, from games and rings alone, what a saved state leaves out."""
    cells = ring.shape[1]
    for lane in range(len(games)):
        game = games[lane]
        for cell in range(cells):
            taken[lane, cell] = 0
        for i in range(game.length):
            taken[lane, ring[lane, (game.head - i) % cells]] = 1
        _paint(game, ring[lane], obs[lane])


@kernel
def _start_game(
    game: Any, ring: np.ndarray, taken: np.ndarray, neighbours: np.ndarray, starts: np.ndarray, starting_blocks: int
) -> None:
    game.episode += 1
    game.steps = 0
    game.over = 0
    for cell in range(len(taken)):
        taken[cell] = 0
    choice = _draw(game.seed, game.episode, 0, len(starts))
    cell = starts[choice, 0]
    game.direction = starts[choice, 1]
    game.length = starting_blocks
    game.head = starting_blocks - 1
    for slot in range(starting_blocks - 1, -1, -1):  # from the head back to the tail
        ring[slot] = cell
        taken[cell] = 1
        cell = neighbours[cell, game.direction ^ 2]
    _place_food(game, taken, 0)


@kernel
def _move(game: Any, action: int, ring: np.ndarray, taken: np.ndarray, neighbours: np.ndarray, starting_blocks: int) -> int:
    """One move; returns its reward. A crash leaves the board as it was."""
    cells = len(ring)
    if action != game.direction ^ 2 or game.length == 1:
        game.direction = action
    target = neighbours[ring[game.head], game.direction]
    tail = game.head - game.length + 1
    tail_cell = ring[tail if tail >= 0 else tail + cells]
    if target < 0 or (taken[target] == 1 and target != tail_cell):
        return -1

    ate = target == game.food
    if not ate:
        taken[tail_cell] = 0  # before the head's cell is taken: they may be the same
    taken[target] = 1
    game.head = game.head + 1 if game.head + 1 < cells else 0
    ring[game.head] = target
    if not ate:
        return 0

    game.length += 1
    _place_food(game, taken, game.length - starting_blocks)
    return 1


@kernel
def _place_food(game: Any, taken: np.ndarray, score: int) -> None:
    """Uniform over the free cells: the k-th of them in row-major order."""
    game.food = -1
    free = len(taken) - game.length
    if free == 0:
        return
    skip = _draw(game.seed, game.episode, 1 + score, free)
    for cell in range(len(taken)):
        if taken[cell] == 0:
            if skip == 0:
                game.food = cell
                return
            skip -= 1


@kernel
def _paint(game: Any, ring: np.ndarray, obs: np.ndarray) -> None:
    """The three planes, from nothing: clearing 3 x dim x dim bytes is cheaper than remembering what to undo."""
    cells = len(ring)
    for i in range(len(obs)):
        obs[i] = 0
    # The block j places before the end of the tail has brightness 255 * j / length, rounded up. The quotient is carried
    # from block to block, with its remainder, so that no division stands in the loop
    whole, part = 255 // game.length, 255 % game.length
    quotient, remainder = 0, game.length - 1
    slot = game.head - game.length + 1
    if slot < 0:
        slot += cells
    for _ in range(game.length - 1):
        quotient += whole
        remainder += part
        if remainder >= game.length:
            remainder -= game.length
            quotient += 1
        obs[cells + ring[slot]] = quotient
        slot = slot + 1 if slot + 1 < cells else 0
    obs[ring[game.head]] = 255
    if game.food >= 0:
        obs[2 * cells + game.food] = 255


@kernel
def _draw(seed: int, episode: int, number: int, choices: int) -> int:
    """The random numbers of snake_rules.draw; everything is cast, because numba's mixed integers become floats."""
    word = _mix(_mix(_mix(np.uint64(seed)) + np.uint64(episode)) + np.uint64(number))
    return np.int64(word % np.uint64(choices))  # type: ignore[return-value]


@kernel
def _mix(word: Any) -> Any:
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
