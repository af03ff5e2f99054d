"""The learner in its own process: appends blocks to the replay, as its only writer, trains, and publishes weights.

A slot is returned to its actor when the updates due for its steps are done. So the learner waits only when no update is
due and no slot is filled, an actor only when all its slots are filled, and they cannot deadlock.
"""

import torch

from fastdqn.actor.games import Game
from fastdqn.processes.build_roles import build_trainer, section_of
from fastdqn.processes.child import DONE, HELLO, NOTE, ROW, RoleTask
from fastdqn.processes.control import Pulse
from fastdqn.processes.shared import open_shared
from fastdqn.processes.slots import SlotSource
from fastdqn.processes.weights import SharedWeights
from fastdqn.run.model import facts_of, load_model, save_model
from fastdqn.runner.limits import Every, Limits
from fastdqn.schedules import exploration, learning_rate, priority_beta
from fastdqn.transition import Block

STOPPED = "stopped"  # by the parent, which knows why
UPDATES_BETWEEN_LOOKS = 1  # of a learner with ratio free: then it checks for blocks again


def learn(task: RoleTask, pulse: Pulse) -> None:
    role = LearnerRole(task, pulse)
    task.door.send((HELLO, {"notes": role.parts.notes}))
    try:
        reason = role.run()
    except (torch.OutOfMemoryError, MemoryError):
        role.save()
        raise
    task.door.send((DONE, {"reason": reason}))


class LearnerRole:
    def __init__(self, task: RoleTask, pulse: Pulse) -> None:
        self.config, self.pulse, self._control = task.config, pulse, pulse.control
        self.parts = parts = build_trainer(
            task.config, task.kind(), task.device, task.network, folder=task.model_file.parent
        )
        if task.from_model is not None:
            load_model(task.from_model, parts.learner.online)
            parts.learner.weights_were_loaded()
        self._work = task.work.bell(self._control)
        self._sources = [
            SlotSource(open_shared(address), section_of(self.config, number), room.bell(self._control))
            for number, (address, room) in enumerate(zip(task.slots, task.room, strict=True))
        ]
        self._last = 0  # the actor whose slot was taken last
        self._door, self._model_file = task.door, task.model_file
        self._shared = SharedWeights(open_shared(task.weights), parts.learner.online)
        sections = [section_of(self.config, number) for number in range(self.config.actor.count)]
        self.limits = Limits(self.config.limits, max(lanes.stop - lanes.start for lanes in sections))
        self._wait_time = parts.timers["wait"]
        self._log_due, self._saved = Every(self.config.log.every_steps), 0
        self._epsilon_at, self._lr_at = exploration(self.config), learning_rate(self.config)
        self._beta_at = priority_beta(self.config)
        self._logged_step = 0
        self._published = (0, 0)  # step, update

    def run(self) -> str:
        """Learns until a limit or a stop; returns why it ended."""
        parts = self.parts
        self._publish()
        for source in self._sources:
            source.wake()  # the actors wait for the first weights
        while not self._filled():  # the clock starts with the first step
            self._work.wait_for(self._filled)
            self._tell()
            if self._control["learner_stops"][0]:
                break
        parts.meter.start()
        take = self._take_held if self.config.learner.ratio == "held" else self._take_free
        reason = ""
        while not reason:
            reason = take()
            self._tell()
        parts.learner.settle()
        self._log()
        self._publish()
        self.save()
        self._control["final_version"][0] = self._shared.version
        return reason

    def _take_held(self) -> str:
        """Takes the next slot and makes the updates due for its steps."""
        source = self._next_source()
        if source is None:
            return self._limit()
        reason = ""
        for block, games in source.rounds():
            self._insert(block, games)
            due = self.parts.ratio.due()
            if due and len(self.parts.replay):
                self._train(due)
            reason = self._after_round()
            if reason:
                break
        source.give_back()
        return reason

    def _take_free(self) -> str:
        """Takes all filled slots, returns them at once, and makes an update whether it is due or not."""
        ratio = self.parts.ratio
        for _ in range(max(1, sum(source.waiting for source in self._sources))):
            source = self._next_source(wait=ratio.steps < ratio.warmup_steps or not len(self.parts.replay))
            if source is None:
                break
            for block, games in source.rounds():
                self._insert(block, games)
                reason = self._after_round()
                if reason:
                    return reason
            source.give_back()
        if ratio.steps >= ratio.warmup_steps and len(self.parts.replay):
            self._train(UPDATES_BETWEEN_LOOKS)
        return self._limit()

    def _next_source(self, wait: bool = True) -> SlotSource | None:
        """The next actor in turn that has a filled slot; None if there is none, even after a short wait."""
        if not self._filled():
            if not wait:
                return None
            with self._wait_time:
                if not self._work.wait_for(self._filled):
                    return None
        in_turn = [*range(self._last + 1, len(self._sources)), *range(self._last + 1)]
        self._last = next(number for number in in_turn if self._sources[number].waiting)
        return self._sources[self._last]

    def _filled(self) -> bool:
        return any(source.waiting for source in self._sources)

    def _insert(self, block: Block, games: list[Game]) -> None:
        with self.parts.timers["store"]:
            self.parts.replay.append(block)
        self.parts.ratio.inserted(len(block.first) - int(block.first.sum()))
        for game in games:
            self.parts.meter.add_game(game.returns, game.score)

    def _train(self, updates: int) -> None:
        self.parts.learner.set_lr(self._lr_at(self.parts.ratio.steps))
        self.parts.replay.set_beta(self._beta_at(self.parts.ratio.steps))
        self.parts.learner.train(updates)
        self.parts.ratio.trained(updates)

    def _after_round(self) -> str:
        """Publishes and logs what is due after a round; returns why the run ends now, or the empty string."""
        step = self.parts.ratio.steps
        if step - self._published[0] >= self.config.actor.sync_every and self.parts.learner.updates > self._published[1]:
            self._publish()
        if self._log_due.passed(step):
            self._log()
        self._tell()
        return self._limit()

    def _limit(self) -> str:
        if self._control["learner_stops"][0]:
            return STOPPED
        meter = self.parts.meter
        return self.limits.reached(self.parts.ratio.steps, meter.episodes, meter.seconds)

    def _tell(self) -> None:
        control = self._control
        control["step"][0], control["update"][0] = self.parts.ratio.steps, self.parts.learner.updates
        control["episode"][0] = self.parts.meter.episodes
        self.pulse.tell("waited", self._wait_time.seconds)
        if control["save"][0] > self._saved:
            self._saved = int(control["save"][0])
            self.save()
        self.pulse.beat()
        self.pulse.rest(self._work)

    def _publish(self) -> None:
        step, update = self.parts.ratio.steps, self.parts.learner.updates
        self.parts.learner.settle()
        self._shared.publish(self.parts.learner.online.state_dict(), step, update)
        self._published = step, update

    def _log(self) -> None:
        step, learner = self.parts.ratio.steps, self.parts.learner
        if step == self._logged_step:
            return
        self._logged_step = step
        self._control["rows"][0] = len(self.parts.replay)
        loss, q_mean = learner.read_means()
        if (advice := learner.advice()) and advice not in self.parts.notes:
            self.parts.notes.append(advice)
            self._door.send((NOTE, advice))
        row = self.parts.meter.row(step, learner.updates, self._epsilon_at(step), loss, q_mean)
        self._door.send((ROW, row))

    def save(self) -> None:
        parts = self.parts
        parts.learner.settle()
        facts = facts_of(parts.spec, parts.stack, parts.ratio.steps, parts.learner.updates)
        save_model(self._model_file, parts.learner.online, facts)
