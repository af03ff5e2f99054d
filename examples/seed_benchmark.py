"""A Snake speed benchmark found in a published speed-up log, with little more than its import changed.

python examples/seed_benchmark.py
"""

import argparse
import time

from fastdqn import Agent
from fastdqn.env.snake import SnakeEnv

# Fault 1 of the original: it stored the state after the step as the state before it, so nothing could be learned.
# Fault 2: it divided 5,000 by the time, but games end before their 50th step, so fewer steps than that were played.

parser = argparse.ArgumentParser()
parser.add_argument("--episodes", type=int, default=100)
episodes = parser.parse_args().episodes

env = SnakeEnv(startingBlocks=3, dim=10, distToBorder=3)
obs, _ = env.reset(seed=0)
# dtype: an agent that is told of bytes scales them to 0..1. No warm-up: the network is asked from the start
agent = Agent(obs.flatten().shape[0], env.action_space.n, dtype=obs.dtype, settings={"replay.warmup_steps": 0})

steps = 0
start = time.time()
for _ in range(episodes):
    obs, _ = env.reset()
    state = obs.flatten()
    for step in range(50):
        action = agent.act(state)
        obs, reward, term, trunc, _ = env.step(action)
        next_state = obs.flatten()
        agent.remember(state, action, reward, next_state, term, trunc)
        state = next_state
        steps += 1
        if step % 4 == 0 and len(agent.memory) > 32:
            agent.learn(batch_size=32)
        if term or trunc:
            break

elapsed = time.time() - start
print(f"{steps:,} steps really taken, {agent.updates:,} updates, {32 * agent.updates / steps:.1f} samples per step")
print(f"Throughput: {steps / elapsed:.1f} steps/sec")
print(f"the original's formula, 50 steps for every game: {50 * episodes / elapsed:.1f} steps/sec")
