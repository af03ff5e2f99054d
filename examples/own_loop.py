"""Own the loop: an Agent that acts, remembers and learns when you say so. CartPole as the book writes it.

python examples/own_loop.py --steps 20k
"""

import argparse
from collections import deque
from pathlib import Path

import gymnasium

from fastdqn import Agent
from fastdqn.config import parse_number


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=parse_number, default=20_000, help="environment steps")
    parser.add_argument("--save", type=Path, default=Path("cartpole.safetensors"), help="where the weights go")
    arguments = parser.parse_args()

    env = gymnasium.make("CartPole-v1")
    agent = Agent(env.observation_space, env.action_space.n, preset="cartpole", seed=0)
    returns: deque[float] = deque([0.0], maxlen=20)
    obs, _ = env.reset(seed=0)
    for step in range(1, arguments.steps + 1):
        action = agent.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        agent.remember(obs, action, float(reward), next_obs, terminated, truncated)
        returns[-1] += float(reward)
        obs = next_obs
        if terminated or truncated:
            obs, _ = env.reset()
            returns.append(0.0)
        if step % 4 == 0:
            agent.learn()  # None until there are enough transitions for a batch
        if step % 2_000 == 0 or step == arguments.steps:
            print(f"step {step:,}  updates {agent.updates:,}  return {sum(returns) / len(returns):.1f}  {agent.epsilon:.2f}")
    agent.save(arguments.save)

    again = Agent(env.observation_space, env.action_space.n, preset="cartpole")
    again.load(arguments.save)
    same = again.act(obs, explore_too=False) == agent.act(obs, explore_too=False)
    print(f"saved to {arguments.save}; the loaded agent {'agrees' if same else 'DISAGREES'}")


if __name__ == "__main__":
    main()
