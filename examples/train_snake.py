"""Train a snake, then film the best of a few games.

python examples/train_snake.py --steps 500k
"""

import argparse

import fastdqn
from fastdqn.play.film import best_of, write_film


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", default="500k", help="environment steps; 1e6, 10M and 200_000 are understood")
    parser.add_argument("--games", type=int, default=5, help="games played for the film; the best one is kept")
    parser.add_argument("--run", help="name of the run folder in runs/")
    arguments = parser.parse_args()

    run = fastdqn.train("snake", steps=arguments.steps, run=arguments.run)
    print(f"{run.steps:,} steps, {run.updates:,} updates: {run.reason}")
    if run.score is not None:  # None after Ctrl-C
        print(f"mean score {run.score.mean:.2f} over {run.score.episodes} games without exploring")

    player = fastdqn.load(run)
    shots = best_of(player, seed=0, games=arguments.games, max_steps=500, progress=print)
    print("film", write_film(run.path / "film.gif", shots, frames_per_second=12))


if __name__ == "__main__":
    main()
