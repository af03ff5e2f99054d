"""An actor in its own process: plays its lanes, fills its slots, loads the newest weights."""

from fastdqn import seeding
from fastdqn.actor.recorder import RecordingSink
from fastdqn.metrics import Timers
from fastdqn.processes.build_roles import build_player, section_of
from fastdqn.processes.child import HELLO, RoleTask
from fastdqn.processes.control import ACTOR_WORK, Pulse
from fastdqn.processes.shared import open_shared
from fastdqn.processes.slots import SlotSink, push_of
from fastdqn.processes.weights import SharedWeights
from fastdqn.schedules import exploration


def play(task: RoleTask, pulse: Pulse) -> None:
    """Runs until a heartbeat raises StoppedError, at the end of the run."""
    config, kind, control = task.config, task.kind(), pulse.control
    lanes = section_of(config, task.number)
    num_lanes = lanes.stop - lanes.start
    push = push_of(config.actor.push, num_lanes, kind.spec)
    timers = Timers()
    work, room = task.work.bell(control), task.room[task.number].bell(control)

    def alive() -> None:
        pulse.tell("waited", timers["wait"].seconds)
        for place, name in enumerate(ACTOR_WORK):
            control["spent"][place, task.role] = timers[name].seconds
        pulse.beat()
        pulse.rest(room)

    sink = SlotSink(open_shared(task.slots[task.number]), push, room, work, alive, timers["wait"])
    begun_at, schedule = int(control["step"][0]), exploration(config)
    actor, network = build_player(
        config,
        kind,
        task.device,
        task.network,
        num_lanes,
        sink,
        lambda own_steps: schedule(begun_at + own_steps * config.actor.count),
        purpose=_purpose("explore", task),
        timers=timers,
    )
    if config.dump.every:
        first, count = int(control["episode"][0]), config.actor.count
        actor.sink = RecordingSink(
            sink, task.recorder(kind, network, number_of=lambda n: first + (n - 1) * count + task.number + 1)
        )
    shared = SharedWeights(open_shared(task.weights), network)
    version = 0
    task.door.send((HELLO, {}))
    while shared.version == 0:  # the learner has not published its first weights yet
        room.wait_for(lambda: shared.version > 0)
        pulse.beat()
    seeds = seeding.lane_seeds(config.seed, _life("env", task.life), config.actor.lanes)
    actor.start(seeds[lanes])
    while True:
        sink.begin_round()
        with timers["weights"]:
            newest = shared.newer(version, network)
        if newest is not None:
            version, step, _ = newest
            pulse.tell("weights_step", step)
        for group in range(len(actor.env.groups)):
            _, games = actor.step(group)
            sink.add_games(games)
        sink.end_round()
        pulse.tell("played", actor.steps)
        alive()


def _purpose(what: str, task: RoleTask) -> str:
    """Actor 0 explores as it would inline; other actors, and restarted ones, have their own random streams."""
    return _life(f"{what} {task.number}" if task.number else what, task.life)


def _life(what: str, life: int) -> str:
    return f"{what}, life {life}" if life else what
