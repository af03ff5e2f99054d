"""Which speed-ups are on: wishes, defaults, what needs what."""

import pytest

from fastdqn import switches
from fastdqn.build import active_switches
from fastdqn.env.registry import find_env
from fastdqn.errors import UserError
from fastdqn.prepare import prepare
from fastdqn.switches import LADDER, Promise, Switch, resolve
from tests.unit.tiny import TINY_SNAKE

DEFAULTS = {switch.name for switch in LADDER if switch.default}
NEEDS_A_GPU = {switch.name for switch in LADDER if "cuda" in switch.machine}


@pytest.fixture
def ladder(monkeypatch):
    """Puts made-up switches in the place of the real ones."""

    def install(*made_up):
        monkeypatch.setattr(switches, "LADDER", made_up)
        monkeypatch.setattr(switches, "SWITCHES", {switch.name: switch for switch in made_up})

    return install


def fake(name, **more):
    return Switch(name, "x.py", Promise.SAME_NUMBERS, "made up", **more)


def test_no_wish_gives_the_defaults():
    assert resolve((), (), device="cuda") == (frozenset(DEFAULTS), [])


def test_a_default_that_needs_a_gpu_is_not_missed_without_one():
    assert {"pinned_copies", "tf32"} <= NEEDS_A_GPU & DEFAULTS
    assert resolve((), ()) == (frozenset(DEFAULTS - NEEDS_A_GPU), [])


def test_a_trade_is_never_a_default():
    assert all(not switch.default for switch in LADDER if switch.promise is Promise.TRADE)


@pytest.mark.parametrize("name", sorted(DEFAULTS - {"array_replay"}))
def test_each_can_be_turned_off_alone(name):
    assert resolve((), (name,), device="cuda") == (frozenset(DEFAULTS - {name}), [])


def test_what_is_off_by_default_can_be_turned_on(ladder):
    ladder(fake("a"), fake("b", default=False))
    assert resolve((), ())[0] == {"a"}
    assert resolve(("b",), ())[0] == {"a", "b"}


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(UserError, match=r"Unknown switch 'frame-ring'\. Did you mean frame_ring"):
        resolve((), ("frame-ring",))
    with pytest.raises(UserError, match="fastdqn switches"):
        resolve(("zzzzzzz",), ())


def test_on_and_off_at_once_is_refused():
    with pytest.raises(UserError, match="frame_ring is both turned on and turned off"):
        resolve(("frame_ring",), ("frame_ring",))


def test_a_default_follows_what_it_needs_and_says_so():
    active, notes = resolve((), ("array_replay",), device="cuda")
    assert active == DEFAULTS - {"array_replay", "frame_ring"}
    assert notes == ["frame_ring is left off: it needs array_replay"]


def test_a_wish_without_what_it_needs_is_refused():
    with pytest.raises(UserError, match=r"The switch frame_ring needs array_replay\."):
        resolve(("frame_ring",), ("array_replay",))


def test_a_chain_of_needs_is_followed_whatever_its_order(ladder):
    ladder(fake("c", needs=("b",)), fake("b", needs=("a",)), fake("a"))
    active, notes = resolve((), ("a",))
    assert active == frozenset()
    assert notes == ["b is left off: it needs a", "c is left off: it needs b"]


@pytest.mark.parametrize(("a_says", "b_says"), [(("b",), ()), ((), ("a",)), (("b",), ("a",))])
def test_in_a_clash_the_wish_wins_over_the_default_whoever_declares_it(ladder, a_says, b_says):
    ladder(fake("a", clashes=a_says), fake("b", default=False, clashes=b_says))
    active, notes = resolve(("b",), ())
    assert active == {"b"}
    assert notes == ["a is left off: it does not go together with b"]


def test_two_wishes_that_clash_are_refused(ladder):
    ladder(fake("a", clashes=("b",)), fake("b"))
    with pytest.raises(UserError, match="The switch a does not go together with b"):
        resolve(("a", "b"), ())


def test_of_two_defaults_that_clash_one_stays(ladder):
    ladder(fake("a", clashes=("b",)), fake("b"))
    active, notes = resolve((), ())
    assert len(active) == len(notes) == 1


@pytest.mark.parametrize(
    ("env", "applies", "foreign"),
    [
        ("snake", "lane_vector_env", "native_atari"),
        ("CartPole-v1", None, "lane_vector_env"),
        ("catch", None, "native_atari"),
    ],
)
def test_a_switch_of_other_environments(env, applies, foreign):
    """Left off without a word when nobody asked for it; refused when somebody did."""
    kind = find_env(env, {})
    job = prepare(env)
    active, notes = active_switches(job.config, kind, "cpu")
    assert foreign not in active
    assert applies is None or applies in active
    assert notes == []
    with pytest.raises(UserError, match=f"The switch {foreign} does not apply to"):
        prepare(env, settings={"switches.on": [foreign]})


def test_turning_a_foreign_switch_off_is_no_fault():
    prepare("snake", settings={**TINY_SNAKE, "switches.off": ["native_atari"]})
