"""The speed benchmark of a published Snake log: 100 games of at most 50 steps on a 10x10 board, one network, one number.

The log's own script had two faults. It divided 5,000 by the time although games end early, and it stored the next state
as the state, so that nothing could be learned. Here the steps really taken are counted and the transitions are true; the
log's own formula is given beside, for comparison with the figures it printed.
"""

import time
from typing import Any


def throughput(episodes: int, steps: int, seed: int = 0) -> dict[str, Any]:
    """Plays and learns: batch 32 at every fourth step of a game, as the log does."""
    from fastdqn.agent import Agent
    from fastdqn.env.snake import SnakeEnv

    env = SnakeEnv(dim=10, starting_blocks=3, dist_to_border=3)
    obs, _ = env.reset(seed=seed)
    agent = Agent(obs.size, 4, dtype=obs.dtype, seed=seed, settings={"replay.warmup_steps": 0})
    taken, began = 0, time.perf_counter()
    for _ in range(episodes):
        obs, _ = env.reset()
        state = obs.flatten()
        for step in range(steps):
            action = agent.act(state)
            obs, reward, terminated, truncated, _ = env.step(action)
            next_state = obs.flatten()
            agent.remember(state, action, float(reward), next_state, terminated, truncated)
            state = next_state
            taken += 1
            if step % 4 == 0 and len(agent.memory) > 32:
                agent.learn(batch_size=32)
            if terminated or truncated:
                break
    seconds = time.perf_counter() - began
    return {
        "steps_per_second": taken / seconds,
        "by_the_logs_formula": episodes * steps / seconds,
        "steps": taken,
        "updates": agent.updates,
        "samples_per_step": 32 * agent.updates / max(1, taken),
        "seconds": seconds,
    }
