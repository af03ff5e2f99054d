"""The switches device_ring and device_snake through the actor: what is stored and what is acted on, against the host's.

Here the device is the CPU: the same tensors and rules. test_cuda_graph.py has them on a GPU and in graphs.
"""

import numpy as np
import pytest
import torch

from fastdqn.actor.actor import Actor
from fastdqn.actor.device_actor import LAG, DeviceActor
from fastdqn.actor.greedy import make_greedy
from fastdqn.actor.policy import Policy
from fastdqn.actor.resident import Chooser, ResidentPolicy, explore
from fastdqn.config import NetworkConfig
from fastdqn.device.counter_rng import CounterRng
from fastdqn.env.device_snake import DeviceSnake
from fastdqn.env.snake_lanes import SnakeLanes
from fastdqn.env.snake_rules import read_settings
from fastdqn.learner.network import make_network
from fastdqn.metrics import Timers
from fastdqn.replay.fast.device_priorities import DevicePriorities
from fastdqn.replay.fast.device_replay import DeviceReplay
from fastdqn.replay.fast.device_ring import DeviceRing
from fastdqn.replay.prioritised import PrioritisedSampler
from fastdqn.replay.replay import RingReplay
from fastdqn.replay.ring import Ring
from fastdqn.replay.sampler import UniformSampler
from fastdqn.runner.ports import ReplaySink

LANES, ROWS, TICKS = 6, 60, 200
BOARD = {"dim": 5, "max_steps": 25}


def network_for(spec, stack):
    torch.manual_seed(3)
    config = NetworkConfig(kind="mlp", hidden=(32,))
    network = make_network(config, spec.state_shape(stack), spec.obs_dtype, spec.num_actions)
    for weight in network.parameters():
        weight.data *= 10.0  # so that what is seen decides, and not the last bias
    return network


def device_replay(spec, stack, n_step=2):
    """By priority: without feedback it draws uniformly as well."""
    ring = DeviceRing(LANES, ROWS, spec.obs_shape, spec.obs_dtype, "cpu")
    priorities = DevicePriorities(ring, stack=stack, n_step=n_step, alpha=0.5, beta=0.4)
    how = {"stack": stack, "n_step": n_step, "gamma": 0.9, "clip_rewards": False}
    return DeviceReplay(ring, CounterRng(0), **how, priorities=priorities)


def host_actor(stack, groups, prioritised=False):
    env = SnakeLanes(LANES, groups, **BOARD)
    ring = Ring(LANES, ROWS, env.spec.obs_shape, env.spec.obs_dtype)
    sampler = UniformSampler(stack, 2, np.random.default_rng(0))
    if prioritised:
        sampler = PrioritisedSampler(stack, 2, sampler.rng, slots=LANES * ROWS, alpha=0.5, beta=0.4)
    replay = RingReplay(ring, sampler, gamma=0.9, clip_rewards=False)
    greedy = make_greedy(network_for(env.spec, stack), "cpu")
    policy = Policy(torch.no_grad()(greedy), env.spec, LANES, stack, np.random.default_rng(0))
    return Actor(env, policy, ReplaySink(replay), lambda step: 0.0, Timers()), replay


def resident_actor(stack, groups):
    env = SnakeLanes(LANES, groups, **BOARD)
    replay = device_replay(env.spec, stack)
    policy = ResidentPolicy(network_for(env.spec, stack), replay.ring, env.groups, env.spec, stack, seed=0)
    return Actor(env, policy, ReplaySink(replay), lambda step: 0.0, Timers()), replay


def device_actor(stack, groups=1):
    env = DeviceSnake(LANES, read_settings(BOARD), "cpu")
    replay = device_replay(env.spec, stack)
    chooser = Chooser(network_for(env.spec, stack), replay.ring, slice(0, LANES), 4, stack, seed=0)
    return DeviceActor(env, chooser, replay.ring, lambda step: 0.0, Timers()), replay


def play(actor, groups, ticks=TICKS):
    actor.start(list(range(LANES)))
    steps, games = 0, []
    for _ in range(ticks):
        for group in range(groups):
            more, ended = actor.step(group)
            steps += more
            games += ended
    return steps, games


def check_same_rows(ours, theirs):
    ours, theirs = ours.ring.state(), theirs.ring.state()
    open_slot = (theirs["W"] - 1) % ROWS
    for name, column in theirs.items():
        mine = ours[name].copy()
        if name in ("action", "reward"):  # an open row has neither yet
            mine[np.arange(LANES), open_slot] = column[np.arange(LANES), open_slot]
        np.testing.assert_array_equal(mine, column, err_msg=name)


@pytest.mark.parametrize("stack", [1, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_the_ring_on_the_device_holds_the_same_rows(stack, groups):
    """Greedy actions depend on the stacked frames, so a stack of another time, lane or game would act differently."""
    (host, their_replay), (resident, our_replay) = host_actor(stack, groups), resident_actor(stack, groups)
    assert play(resident, groups) == play(host, groups)
    check_same_rows(our_replay, their_replay)
    assert len(set(our_replay.ring.state()["action"].ravel())) > 1, "the network chooses"


@pytest.mark.parametrize("stack", [1, 2])
def test_boards_on_the_device_play_and_store_the_same(stack):
    (host, their_replay), (actor, our_replay) = host_actor(stack, 1), device_actor(stack)
    steps, games = play(actor, 1)
    late_steps, late_games = actor.settle()
    expected_steps, expected_games = play(host, 1)
    assert steps + late_steps == actor.steps == host.steps == expected_steps
    assert games + late_games == expected_games
    assert 0 < late_steps <= LAG * LANES, "told late"
    check_same_rows(our_replay, their_replay)


@pytest.mark.parametrize("stack", [1, 2])
@pytest.mark.parametrize("make", [resident_actor, device_actor], ids=["ring", "boards"])
def test_priorities_see_every_write(make, stack):
    """Blocks from the host, and those that an actor on the device writes by itself: with feedback on the way, the host has
    the same priorities."""
    (host, theirs), (actor, ours) = host_actor(stack, 1, prioritised=True), make(stack, 1)
    for each in (host, actor):
        each.start(list(range(LANES)))
    rng = np.random.default_rng(0)
    for _ in range(TICKS):
        host.step(0)
        actor.step(0)
        if len(ours):
            index, error = ours.sample(4).index, torch.from_numpy(rng.random(4).astype(np.float32) * 4)
            ours.feedback(index, error)
            theirs.feedback(index.numpy(), error.numpy())
        np.testing.assert_allclose(ours.priorities.stored.numpy(), theirs.sampler.tree.leaves, rtol=1e-12, atol=0)
    assert len(np.unique(theirs.sampler.tree.leaves)) > 50


def test_the_same_rows_give_the_same_batches():
    """From the same starts, bit by bit; and what the device draws, the host would make the same window of."""
    (host, their_replay), (resident, our_replay) = host_actor(3, 1), resident_actor(3, 1)
    play(host, 1)
    play(resident, 1)
    batch = our_replay.sample(256)
    lane, row = batch.index.numpy().T
    keep = batch.weight.numpy() > 0
    expected = their_replay.gather(lane[keep], row[keep])
    for name in ("state", "action", "returns", "discount", "next_state"):
        np.testing.assert_array_equal(getattr(batch, name).numpy()[keep], getattr(expected, name), err_msg=name)


def test_a_run_may_go_on_with_a_ring_of_the_other_kind():
    host, their_replay = host_actor(2, 1)
    play(host, 1)
    spec = host.env.spec
    ours = device_replay(spec, 2)
    ours.ring.load_state(their_replay.ring.state())
    check_same_rows(ours, their_replay)
    back = Ring(LANES, ROWS, spec.obs_shape, spec.obs_dtype)
    back.load_state(ours.ring.state())
    np.testing.assert_array_equal(back.obs, their_replay.ring.obs)


def test_rows_since_are_those_of_the_host():
    (host, their_replay), (resident, our_replay) = host_actor(1, 1), resident_actor(1, 1)
    play(host, 1)
    play(resident, 1)
    since = their_replay.ring.W - 9
    for ours, theirs in zip(our_replay.ring.rows(since), their_replay.ring.rows(since), strict=True):
        assert ours["row"].tolist() == theirs["row"].tolist()
        for name in ("obs", "flags"):
            np.testing.assert_array_equal(ours[name], theirs[name])
        for name in ("action", "reward"):
            np.testing.assert_array_equal(ours[name][:-1], theirs[name][:-1])


def test_exploring_is_uniform_and_as_frequent_as_epsilon():
    greedy = torch.full((50_000,), 2)
    chosen = explore(greedy, torch.tensor(0.4), 5, CounterRng(1)).numpy()
    counts = np.bincount(chosen, minlength=5) / len(chosen)
    np.testing.assert_allclose(counts, [0.08, 0.08, 0.68, 0.08, 0.08], atol=0.01)
    assert torch.equal(explore(greedy, torch.tensor(0.0), 5, CounterRng(1)), greedy)


def test_epsilon_is_read_anew_each_time():
    actor, _ = resident_actor(1, 1)
    actor.start(list(range(LANES)))
    actor.step(0)
    chooser = actor.policy._choosers[0, LANES]
    greedy = chooser.act(0.0).copy()
    assert all((chooser.act(0.0) == greedy).all() for _ in range(20))
    assert any((chooser.act(0.9) != greedy).any() for _ in range(20))
    assert (chooser.act(0.0) == greedy).all()


def test_the_choosers_state_goes_on_exactly():
    first, _ = resident_actor(1, 2)
    again, _ = resident_actor(1, 2)
    play(first, 2, 30)
    play(again, 2, 31)
    again.policy.load_state(first.policy.state())
    for chooser, other in zip(first.policy._choosers.values(), again.policy._choosers.values(), strict=True):
        assert torch.equal(chooser.device_rng.bits(5), other.device_rng.bits(5))
        assert chooser.act(1.0).tolist() == other.act(1.0).tolist()
