"""What a measurement is about, and what it is called."""

import json
from dataclasses import dataclass
from typing import Any

from fastdqn.config import Config
from fastdqn.prepare import Job
from fastdqn.run.folder import MACHINE, RunFolder
from fastdqn.run.machine import describe_machine

TITLES = {
    "ladder": "The ladder on {env}",
    "sweep": "A sweep on {env}",
    "growth": "What more work costs on {env}",
    "profile": "Where the time goes on {env}",
    "envs": "{env} alone",
    "peers": "{env} beside other programs",
    "throughput": "The Snake log's own benchmark",
    "run": "Runs on {env}",
}


@dataclass(frozen=True)
class Subject:
    """The part of a record that is known before anything is measured."""

    config: Config
    protocol: str
    device: str
    switches: list[str]
    machine: dict[str, Any]

    def title(self, kind: str) -> str:
        return TITLES[kind].format(env=env_name(self.config))


def subject_of_job(job: Job) -> Subject:
    return Subject(job.config, job.kind.spec.protocol, job.device, sorted(job.switches), describe_machine())


def subject_of_run(run: RunFolder, protocol: str) -> Subject:
    """Where and how the run was trained, as its folder says."""
    machine = json.loads((run.path / MACHINE).read_text())
    decided = machine.pop("run", {})
    return Subject(run.config(), protocol, decided.get("device", ""), decided.get("switches", []), machine)


def env_name(config: Config) -> str:
    """'Snake 10x10', 'Pong', 'CartPole-v1'."""
    if config.env_id == "snake":
        return f"Snake {config.env['dim']}x{config.env['dim']}"
    short = config.env_id.removeprefix("fastdqn/").removesuffix("-v0")
    return short.capitalize() if short.islower() else short
