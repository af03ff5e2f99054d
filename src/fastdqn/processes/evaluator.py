"""The greedy actor in its own process: plays the newest weights on its own schedule and blocks no other role."""

from fastdqn import seeding
from fastdqn.processes.build_roles import build_greedy_player
from fastdqn.processes.child import HELLO, SCORE, RoleTask
from fastdqn.processes.control import Pulse
from fastdqn.processes.shared import open_shared
from fastdqn.processes.slots import StoppedError
from fastdqn.processes.weights import SharedWeights
from fastdqn.runner.limits import Every, evaluation_interval

LOOKS_A_SECOND = 20


def judge(task: RoleTask, pulse: Pulse) -> None:
    """Evaluates the newest weights once per evaluation interval, and the final ones at the end."""
    config, kind, control = task.config, task.kind(), pulse.control
    lanes = min(config.evaluator.lanes, config.evaluator.episodes)
    evaluator, network = build_greedy_player(config, kind, task.device, task.network, lanes)
    if config.dump.every:
        evaluator.recorder = task.recorder(kind, network)
    shared = SharedWeights(open_shared(task.weights), network)
    due, version, judged_update = Every(evaluation_interval(config)), 0, -1
    task.door.send((HELLO, {}))
    while True:
        pulse.beat()
        final = int(control["final_version"][0])
        newest = shared.newer(version, network) if final or due.would_pass(shared.step) else None
        if newest is None:
            if final:  # already evaluated, or nothing to evaluate
                task.door.send((SCORE, None))
                raise StoppedError
            task.door.poll(1 / LOOKS_A_SECOND)  # nothing is ever sent: this is a sleep that ends with the parent
            continue
        version, step, update = newest
        due.passed(step)
        if (final and not config.evaluator.at_end) or update == judged_update:
            continue
        seeds = seeding.lane_seeds(config.seed, f"evaluate at {step}", lanes)
        score = evaluator.evaluate(
            config.evaluator.episodes,
            seeds,
            step,
            update,
            stopped=lambda: bool(control["stop"][0]),
            on_tick=lambda share: _tell_share(pulse, share),
        )
        control["evaluated"][0] = 0.0
        if score is not None:
            judged_update = update
            task.door.send((SCORE, score))


def _tell_share(pulse: Pulse, share: float) -> None:
    pulse.control["evaluated"][0] = max(share, 1e-9)
    pulse.control["beats"][1] += 1
