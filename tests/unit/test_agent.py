"""The agent for those who own their loop, and the player that load() gives."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import fastdqn
from fastdqn import Agent, UserError
from fastdqn.play.film import play
from fastdqn.run import preflight
from fastdqn.switches import LADDER
from tests.unit.tiny import train_tiny

SMALL = {
    "replay.capacity": 2000,
    "replay.n_step": 1,
    "replay.warmup_steps": 0,
    "actor.epsilon_start": 1.0,
    "actor.epsilon_end": 1.0,
    "network.hidden": [32],
    "learner.batch_size": 32,
    "learner.gamma": 0.9,
    "learner.lr": 3e-3,
    "learner.target_every": 25,
}
STATES = np.eye(5, dtype=np.float32)


def agent(settings=(), **options):
    return Agent(5, 2, settings={**SMALL, **dict(settings)}, **options)


def values(made, obs):
    with torch.no_grad():
        return made._learner.online(torch.as_tensor(np.asarray(obs))[None])[0].numpy()


# ---------------------------------------------------------------- learning


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_chain_of_five_states_is_learned_to_its_known_values(n_step):
    """Right leads to the last state, which pays 1 and ends; left leads back. Worth of right from state s: 0.9 ** (3 - s).
    With n steps the values of random play would be lower, so only n = 1 is held to the exact ones."""
    made = agent({"replay.n_step": n_step})
    losses = []
    state = 0
    for step in range(2500):
        action = made.act(STATES[state])
        next_state = state + 1 if action else max(0, state - 1)
        done = next_state == 4
        made.remember(STATES[state], action, float(done), STATES[next_state], done)
        state = 0 if done else next_state
        if step % 2 == 0:
            losses.append(made.learn())
    assert made.steps == 2500
    assert made.updates > 1000
    assert [made.act(STATES[s], explore_too=False) for s in range(4)] == [1, 1, 1, 1]
    if n_step == 1:
        right = [values(made, STATES[s])[1] for s in range(4)]
        np.testing.assert_allclose(right, [0.9**3, 0.9**2, 0.9, 1], atol=0.06)
        left = [values(made, STATES[s])[0] for s in range(4)]
        np.testing.assert_allclose(left, [0.9**4, 0.9**4, 0.9**3, 0.9**2], atol=0.06)
        seen = [loss for loss in losses if loss is not None]
        assert np.mean(seen[-100:]) < np.mean(seen[:20]) / 2


def test_learn_waits_for_a_batch():
    made = agent()
    for i in range(40):
        assert (made.learn() is None) == (i < 32), i
        made.remember(STATES[i % 5], 0, 1.0, STATES[(i + 1) % 5], False)
    assert made.updates == 8
    assert made.learn(batch_size=4) is not None


def worth_of(ending):
    """A leads to B with reward 1 and `ending`; B ends with reward 2. Gamma 0.9."""
    made = agent()
    for _ in range(60):
        made.remember(STATES[0], 0, 1.0, STATES[1], **ending)
        made.remember(STATES[1], 0, 2.0, STATES[2], terminated=True)
    for _ in range(500):
        made.learn()
    return values(made, STATES[0])[0]


def test_an_end_and_a_cut_are_worth_different_things():
    assert worth_of({"terminated": True}) == pytest.approx(1.0, abs=0.05)
    assert worth_of({"terminated": False, "truncated": True}) == pytest.approx(1 + 0.9 * 2, abs=0.1)
    assert worth_of({"terminated": False}) == pytest.approx(1 + 0.9 * 2, abs=0.1)


# ---------------------------------------------------------------- what is remembered


def stored(made, row):
    batch = made.memory.gather(np.array([0]), np.array([row]))
    return [np.asarray(value)[0] for value in batch]


def test_steps_that_follow_share_their_observation():
    made = agent()
    for s in range(3):
        made.remember(STATES[s], s % 2, float(s), STATES[s + 1], False)
    assert made.memory.ring.W.tolist() == [4]
    assert len(made.memory) == 3
    for s in range(3):
        state, action, reward, discount, next_state, _, _ = stored(made, s)
        assert (state.argmax(), action, reward, discount, next_state.argmax()) == (s, s % 2, s, np.float32(0.9), s + 1)


def test_a_step_out_of_order_begins_a_new_episode():
    """No n-step return may run across the seam: what was left hanging bootstraps from the last thing it saw."""
    made = agent({"replay.n_step": 3})
    made.remember(STATES[0], 0, 1.0, STATES[1], False)
    made.remember(STATES[3], 1, 10.0, STATES[4], False)
    for _ in range(3):
        made.remember(STATES[4], 0, 0.0, STATES[4], False)
    state, _, returns, discount, next_state, _, _ = stored(made, 0)
    assert (state.argmax(), returns, next_state.argmax()) == (0, 1.0, 1)
    assert discount == pytest.approx(0.9)
    state, _, returns, discount, _, _, _ = stored(made, 2)
    assert (state.argmax(), returns, discount) == (3, 10.0, pytest.approx(0.9**3))


@pytest.mark.parametrize("ending", [{"terminated": True}, {"terminated": False, "truncated": True}])
def test_after_an_end_the_same_observation_begins_anew(ending):
    made = agent()
    made.remember(STATES[0], 0, 1.0, STATES[1], **ending)
    made.remember(STATES[1], 0, 2.0, STATES[2], False)
    assert made.memory.ring.W.tolist() == [4], "two rows for each of the two episodes"
    discount = stored(made, 0)[3]
    assert discount == (0 if ending["terminated"] else np.float32(0.9))


def test_observations_are_copied():
    made = agent()
    buffer = STATES[0].copy()
    following = STATES[1].copy()
    made.remember(buffer, 0, 0.0, following, False)
    buffer[:] = following[:] = 9
    assert stored(made, 0)[0].tolist() == STATES[0].tolist()
    assert stored(made, 0)[4].tolist() == STATES[1].tolist()
    made.remember(STATES[1], 0, 0.0, STATES[2], False)
    assert made.memory.ring.W.tolist() == [3], "the second step still follows the first"


def test_what_does_not_fit_is_refused():
    made = agent()
    for action in (-1, 2):
        with pytest.raises(ValueError, match=r"not one of 0\.\.1"):
            made.remember(STATES[0], action, 0.0, STATES[1], False)
    with pytest.raises(ValueError, match=r"shape \(5,\), not \(4,\)"):
        made.act(np.zeros(4), explore_too=False)


# ---------------------------------------------------------------- acting


def test_exploration_follows_the_schedule():
    made = agent({"actor.epsilon_end": 0.0, "actor.epsilon_steps": 10, "replay.warmup_steps": 5})
    seen = []
    for _ in range(12):
        seen.append(made.epsilon)
        made.remember(STATES[0], 0, 0.0, STATES[1], True)
    assert seen[:5] == [1.0] * 5
    assert seen[5:] == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1, 0, 0])
    greedy = int(values(made, STATES[2]).argmax())
    assert {made.act(STATES[2]) for _ in range(20)} == {greedy}


def test_random_at_first_and_the_same_with_the_same_seed():
    draws = [[made.act(STATES[0]) for _ in range(50)] for made in (agent(seed=1), agent(seed=1), agent(seed=2))]
    assert draws[0] == draws[1] != draws[2]
    assert set(draws[0]) == {0, 1}
    assert values(agent(seed=1), STATES[0]).tolist() == values(agent(seed=1), STATES[0]).tolist()
    assert values(agent(seed=1), STATES[0]).tolist() != values(agent(seed=2), STATES[0]).tolist()


# ---------------------------------------------------------------- making one


@pytest.mark.parametrize(
    ("observations", "shape", "dtype"),
    [
        (4, (4,), np.float32),
        (np.int64(4), (4,), np.float32),
        ((2, 3), (2, 3), np.float32),
        ([4], (4,), np.float32),
        (spaces.Box(-1, 1, (3,), np.float64), (3,), np.float64),
        (spaces.Box(0, 255, (3, 20, 20), np.uint8), (3, 20, 20), np.uint8),
        (spaces.Box(0, 255, (20, 24, 3), np.uint8), (3, 20, 24), np.uint8),
        (spaces.Box(0, 255, (20, 24), np.uint8), (1, 20, 24), np.uint8),
        (spaces.Box(-1, 1, (), np.float32), (1,), np.float32),
    ],
    ids=str,
)
def test_observations_in_every_form(observations, shape, dtype):
    made = Agent(observations, np.int64(3), settings=SMALL | {"network.channels": [4]})
    assert (made.spec.obs_shape, made.spec.obs_dtype, made.spec.num_actions) == (shape, dtype, 3)
    obs = observations.sample() if isinstance(observations, spaces.Box) else np.zeros(shape)
    assert made.act(obs, explore_too=False) in (0, 1, 2)
    made.remember(obs, 1, 0.5, obs, False)
    assert stored(made, 0)[0].shape == shape


def test_images_with_their_channels_last_are_turned():
    made = Agent((20, 24, 3), 2, dtype=np.uint8, settings=SMALL | {"network.channels": [4]})
    image = np.random.default_rng(0).integers(0, 255, (20, 24, 3), dtype=np.uint8)
    made.remember(image, 0, 0.0, image, False)
    np.testing.assert_array_equal(stored(made, 0)[0], np.moveaxis(image, -1, 0))


def test_a_loop_over_a_gymnasium_environment():
    env = gymnasium.make("CartPole-v1")
    made = Agent(env.observation_space, env.action_space.n, settings=SMALL)
    obs, _ = env.reset(seed=0)
    for _ in range(100):
        action = made.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        made.remember(obs, action, reward, next_obs, terminated, truncated)
        made.learn()
        obs = env.reset()[0] if terminated or truncated else next_obs
    assert made.updates > 50
    assert len(made.memory) >= 100


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Agent(spaces.Discrete(4), 2), "needs a Box of observations, not Discrete"),
        (lambda: Agent(4, 2, settings={"learner.bach_size": 3}), "learner.batch_size"),
        (lambda: Agent(4, 2, preset="snak"), "Did you mean snake"),
        (lambda: Agent(4, 2, device="gpu"), "Unknown device"),
        (lambda: Agent(4, 2, settings={"network.kind": "cnn"}), "needs images"),
    ],
)
def test_agents_that_cannot_be_made(make, sentence):
    with pytest.raises(UserError, match=sentence):
        make()


def test_a_memory_larger_than_the_machine_is_refused_at_the_start(monkeypatch):
    monkeypatch.setattr(preflight, "free_memory", lambda: preflight.RESERVE_BYTES + 10**6)
    with pytest.raises(UserError, match=r"The largest that fits: --set replay\.capacity=\d+"):
        agent({"replay.capacity": "1e9"})


def test_small_networks_get_one_thread():
    """A second one only waits for the first, and takes a core from the environment."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        agent()
        assert torch.get_num_threads() == 1
        agent({"learner.threads": 2})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_large_images_go_to_the_gpu_and_small_ones_stay(monkeypatch):
    chosen = []
    monkeypatch.setattr("fastdqn.agent.choose_device", lambda device, large: chosen.append(large) or "cpu")
    Agent((4, 84, 84), 2, settings=SMALL | {"network.channels": [4, 4, 4]})
    Agent((4, 10, 10), 2, settings=SMALL)
    assert chosen == [True, False]


def test_own_network():
    def own(state_shape, num_actions):
        return torch.nn.Linear(state_shape[0], num_actions)

    made = agent(network=own)
    assert made.act(STATES[0], explore_too=False) in (0, 1)


OF_THE_AGENT = [switch for switch in LADDER if switch.file.startswith(("replay", "actor", "learner"))]


@pytest.mark.parametrize("name", [switch.name for switch in OF_THE_AGENT])
def test_it_works_without_each_of_the_speed_ups(name):
    made = agent({"switches.off": [name]})
    for i in range(50):
        made.remember(STATES[i % 4], i % 2, 1.0, STATES[i % 4 + 1], i % 4 == 3)
        made.act(STATES[0], explore_too=False)
    assert made.learn() is not None


def test_its_network_follows_the_switches():
    made = Agent((4, 20, 20), 2, settings=SMALL | {"network.channels": [4], "switches.on": ["channels_last"]})
    assert all(layer.inplace for layer in made._learner.online.modules() if isinstance(layer, torch.nn.ReLU))
    kernel = made._learner.online.body[0].weight
    assert kernel.is_contiguous(memory_format=torch.channels_last)


# ---------------------------------------------------------------- save and load


def test_save_and_load(tmp_path):
    made = agent(seed=1)
    for _ in range(40):
        made.remember(STATES[0], 0, 1.0, STATES[1], True)
        made.learn()
    made.save(tmp_path / "mine.safetensors")
    other = agent(seed=2)
    assert values(other, STATES[0]).tolist() != values(made, STATES[0]).tolist()
    other.load(str(tmp_path / "mine.safetensors"))
    assert (other.steps, other.updates) == (40, made.updates)
    assert other.epsilon == made.epsilon
    assert made.updates > 0
    for state in STATES:
        assert values(other, state).tolist() == values(made, state).tolist()
    for online, target in zip(other._learner.online.parameters(), other._learner.target.parameters(), strict=True):
        assert torch.equal(online, target)
    with pytest.raises(UserError, match="does not fit this network"):
        Agent(6, 2, settings=SMALL).load(tmp_path / "mine.safetensors")
    with pytest.raises(UserError, match="There is no model"):
        other.load(tmp_path / "none")


# ---------------------------------------------------------------- the player


@pytest.fixture(scope="module")
def stacked(tmp_path_factory):
    run = train_tiny(run=str(tmp_path_factory.mktemp("stacked") / "run"), settings={"replay.stack": 4})
    return fastdqn.load(run)


def frames(count, seed=0):
    return np.random.default_rng(seed).integers(0, 255, (count, 3, 5, 5), dtype=np.uint8)


def asked(player, newest):
    """What the network says of these frames, padded with zeros in front."""
    state = np.zeros((4, 3, 5, 5), np.uint8)
    newest = newest[-4:]
    state[4 - len(newest) :] = newest
    with torch.no_grad():
        return player.network(torch.from_numpy(state.reshape(1, 12, 5, 5)))[0].tolist()


def test_the_player_keeps_the_last_four_frames(stacked):
    stacked.reset()
    shown = frames(7)
    for i in range(7):
        assert stacked.values(shown[i]).tolist() == asked(stacked, shown[: i + 1])
    stacked.reset()
    assert stacked.values(shown[0]).tolist() == asked(stacked, shown[:1]), "a new game knows nothing of the old one"
    stacked.reset()
    assert stacked.act(shown[3]) == int(np.argmax(asked(stacked, shown[3:4])))


def test_the_player_takes_a_whole_state_too(stacked):
    stacked.reset()
    shown = frames(6, seed=1)
    stacked.values(shown[0])
    whole = stacked.values(shown[2:6].reshape(12, 5, 5)).tolist()
    assert whole == asked(stacked, shown[2:6])
    assert stacked.values(shown[1]).tolist() == asked(stacked, shown[:2]), "the history was not touched"


def test_the_player_plays_like_the_evaluator(stacked):
    """One whole game by hand, frame by frame, against the evaluator's own of the same seed."""
    from fastdqn.build import build_evaluator
    from fastdqn.switches import resolve

    evaluator = build_evaluator(stacked.config, stacked.kind, stacked.greedy, 1, resolve((), ())[0])
    score = evaluator.evaluate(1, [5], 0, 0)
    env = stacked.kind.make_single()
    obs, _ = env.reset(seed=5)
    stacked.reset()
    food, steps, over = 0.0, 0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(stacked.act(obs))
        food, steps, over = food + max(0.0, reward), steps + 1, terminated or truncated
    assert (score.scores, score.steps) == ([food], [steps])


def test_a_film_begins_without_frames_of_another_game(stacked):
    stacked.values(frames(1, seed=2)[0])
    next(play(stacked, "ansi", 0, 5))
    assert not stacked._history.any()


def test_devices_of_a_player(trained):
    assert next(fastdqn.load(trained, device="auto").network.parameters()).device.type == "cpu"
    with pytest.raises(UserError, match="Unknown device 'gpu'"):
        fastdqn.load(trained, device="gpu")
