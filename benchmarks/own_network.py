"""Networks of one's own against the same ones built in, in turns.

    python benchmarks/own_network.py NAME ENV KIND [KEY=VALUE ...]

KIND is mlp, cnn, nature or dueling (an mlp with two streams). The record is a sweep of two rows.
"""

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fastdqn.bench.conduct import Measuring
from fastdqn.bench.identity import subject_of_job
from fastdqn.bench.measure import measure
from fastdqn.bench.record import Keeper
from fastdqn.bench.rows import speed_columns
from fastdqn.bench.table import show
from fastdqn.config import parse_assignment
from fastdqn.learner.network import MakeBody
from fastdqn.prepare import prepare


class Mlp(nn.Module):
    def __init__(self, state_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first, self.second, self.last = (
            nn.Linear(int(np.prod(state_shape)), 256),
            nn.Linear(256, 256),
            nn.Linear(256, outputs),
        )

    def forward(self, state: Tensor) -> Tensor:
        features = torch.relu(self.second(torch.relu(self.first(state.flatten(1)))))
        answer: Tensor = self.last(features)
        return answer


class Cnn(nn.Module):
    def __init__(self, state_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first, self.hidden = (
            nn.Conv2d(state_shape[0], 16, 3, padding=1),
            nn.Linear(16 * state_shape[1] * state_shape[2], 128),
        )
        self.last = nn.Linear(128, outputs)

    def forward(self, state: Tensor) -> Tensor:
        answer: Tensor = self.last(torch.relu(self.hidden(torch.relu(self.first(state)).flatten(1))))
        return answer


class Nature(nn.Module):
    def __init__(self, state_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(state_shape[0], 32, 8, stride=4), nn.Conv2d(32, 64, 4, stride=2)
        self.third, self.hidden, self.last = nn.Conv2d(64, 64, 3), nn.Linear(3136, 512), nn.Linear(512, outputs)

    def forward(self, state: Tensor) -> Tensor:
        features = torch.relu(self.third(torch.relu(self.second(torch.relu(self.first(state))))))
        answer: Tensor = self.last(torch.relu(self.hidden(features.view(features.size(0), -1))))
        return answer


class Dueling(nn.Module):
    def __init__(self, state_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.shared = nn.Linear(int(np.prod(state_shape)), 256)
        self.value = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
        self.advantage = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs))

    def forward(self, state: Tensor) -> Tensor:
        features = torch.relu(self.shared(state.flatten(1)))
        advantage: Tensor = self.advantage(features)
        joined: Tensor = self.value(features) + advantage - advantage.mean(1, keepdim=True)
        return joined


WIDE: dict[str, Any] = {"network.kind": "mlp", "network.hidden": [256, 256]}
KINDS: dict[str, tuple[MakeBody, dict[str, Any]]] = {  # the class, and the settings of the same network built in
    "mlp": (Mlp, WIDE),
    "dueling": (Dueling, WIDE | {"network.dueling": True}),
    "cnn": (Cnn, {"network.kind": "cnn", "network.channels": [16], "network.hidden": [128]}),
    "nature": (Nature, {"network.kind": "nature"}),
}


def main(name: str, env: str, kind: str, *settings: str) -> None:
    own, same = KINDS[kind]
    wanted = dict(map(parse_assignment, settings))
    jobs = {"built in": prepare(env, None, same | wanted), "own": prepare(env, None, wanted, network=own)}
    measuring = Measuring(seconds=4.0, repeats=5)
    keeper = Keeper("sweep", subject_of_job(jobs["built in"]), vars(measuring), "benchmarks/records", name)
    speeds: dict[str, list[dict[str, Any]]] = {row: [] for row in jobs}
    for turn in range(measuring.repeats):
        for row in sorted(jobs, reverse=turn % 2 == 1):
            speeds[row].append(measure(jobs[row], measuring.seconds).as_json())
    for row, against in (("built in", None), ("own", speeds["built in"])):
        columns = speed_columns(speeds[row], against) | {"switches": speeds[row][-1]["switches"], "speeds": speeds[row]}
        learned = {"learning_verdict": "not measured", "learning": None, "minutes_to_target": None, "minutes_change": None}
        keeper.record["rows"].append({"value": row, "rung": row, "settings": {}} | columns | learned)
    keeper.record["notes"].append(f"own: the class {own.__name__} of benchmarks/own_network.py.")
    keeper.finish()
    show(keeper.record)


if __name__ == "__main__":
    main(*sys.argv[1:])
