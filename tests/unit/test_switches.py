"""Which speed-ups are on: wishes, defaults, what needs what."""

import pytest

from fastdqn import switches
from fastdqn.build import active_switches, build
from fastdqn.device import hardware
from fastdqn.env.registry import find_env
from fastdqn.errors import UserError
from fastdqn.prepare import prepare
from fastdqn.switches import LADDER, Promise, Switch, dependents, resolve
from tests.unit.tiny import TINY_SNAKE

BESIDE_BF16 = {"shadow_weights"}  # a default that adds to a switch which is none
DEFAULTS = {switch.name for switch in LADDER if switch.default} - BESIDE_BF16
NEEDS_A_GPU = {switch.name for switch in LADDER if "cuda" in switch.machine}
ON_A_GPU = DEFAULTS - {switch.name for switch in LADDER if "cpu" in switch.machine}
NEEDED = {name for switch in LADDER if switch.default for name in switch.needs}  # by another default


@pytest.fixture
def ladder(monkeypatch):
    """Puts made-up switches in the place of the real ones."""

    def install(*made_up):
        monkeypatch.setattr(switches, "LADDER", made_up)
        monkeypatch.setattr(switches, "SWITCHES", {switch.name: switch for switch in made_up})

    return install


def fake(name, **more):
    return Switch(name, "x.py", Promise.SAME_NUMBERS, "made up", **more)


@pytest.fixture
def compiler(monkeypatch):
    """A machine with all that Triton needs."""
    monkeypatch.setitem(hardware.NEEDS, "compiler", lambda device: "")


def test_no_wish_gives_the_defaults(compiler):
    assert resolve((), (), device="cuda") == (frozenset(ON_A_GPU), [])


def test_a_default_that_needs_a_gpu_is_not_missed_without_one():
    assert {"pinned_copies", "tf32"} <= NEEDS_A_GPU & DEFAULTS
    assert resolve((), ()) == (frozenset(DEFAULTS - NEEDS_A_GPU), [])


def test_a_trade_is_never_a_default():
    assert all(not switch.default for switch in LADDER if switch.promise is Promise.TRADE)


@pytest.mark.parametrize("name", sorted(ON_A_GPU - NEEDED))
def test_each_can_be_turned_off_alone(name, compiler):
    assert resolve((), (name,), device="cuda") == (frozenset(ON_A_GPU - {name}), [])


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


def test_a_default_follows_what_it_needs_and_says_so(compiler):
    active, notes = resolve((), ("array_replay",), device="cuda")
    assert active == ON_A_GPU - {"array_replay"} - dependents("array_replay")
    assert notes[:2] == [
        "frame_ring is left off: it needs array_replay",
        "compiled_draw is left off: it needs frame_ring",
    ]
    assert len(notes) == len(dependents("array_replay") & ON_A_GPU)


def test_what_needs_a_switch_at_first_and_second_hand():
    assert dependents("device_ring") == {"fused_draw", "cuda_graph", "overlap", "device_snake"}
    assert dependents("array_replay") == {"frame_ring", "compiled_draw", "device_ring", *dependents("device_ring")}
    assert dependents("tf32") == set()


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
        ("CartPole-v1", "lane_vector_env", "native_atari"),
        ("catch", None, "lane_vector_env"),
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


# ---------------------------------------------------------------- what a machine lacks


@pytest.fixture
def machine(monkeypatch):
    """Puts a made-up machine in the place of this one: need -> what is missing."""

    def install(**missing):
        for need in hardware.NEEDS:
            monkeypatch.setitem(hardware.NEEDS, need, lambda device, need=need: missing.get(need, ""))

    return install


def test_what_is_preferred_is_on_where_the_machine_can(machine):
    machine()
    assert resolve((), (), ("bf16", "channels_last")) == (frozenset(DEFAULTS | BESIDE_BF16 | {"bf16", "channels_last"}), [])


def test_what_is_preferred_and_cannot_be_had_is_left_off_with_a_line(machine):
    machine(bf16="an abacus", compiler="a typewriter")
    active, notes = resolve((), (), ("bf16", "channels_last", "compile"))
    assert active == DEFAULTS - {"wide_optimizer", "fused_draw"} | {"channels_last"}
    assert notes == ["left off, for want of an abacus: bf16", "left off, for want of a typewriter: compile"]


def test_one_line_for_all_that_want_the_same(machine):
    machine(cuda="a CUDA device")
    active, notes = resolve((), (), ("fp16", "tf32"))
    assert active == DEFAULTS - NEEDS_A_GPU
    assert notes == ["left off, for want of a CUDA device: tf32, fp16"]


@pytest.mark.parametrize("prefer", [(), ("bf16",)])
def test_what_is_asked_for_by_name_and_cannot_be_had_is_refused(machine, prefer):
    machine(bf16="an abacus")
    with pytest.raises(UserError, match=r"^The switch bf16 needs an abacus, which is not there \(device cpu\)\.$"):
        resolve(("bf16",), (), prefer)


def test_off_wins_over_preferred_without_a_line(machine):
    machine()
    assert resolve((), ("bf16",), ("bf16",)) == (frozenset(DEFAULTS), [])
    machine(bf16="an abacus")
    assert resolve((), ("bf16",), ("bf16",)) == (frozenset(DEFAULTS), [])


def test_what_is_preferred_gives_way_to_what_is_asked_for(machine):
    machine()
    active, notes = resolve(("fp16",), (), ("bf16",))
    needing = dependents("hand_written")
    assert active == DEFAULTS - {"hand_written", "cuda_graph", *needing} | {"fp16"}
    clashing = [f"{name} is left off: it does not go together with fp16" for name in ("hand_written", "bf16", "cuda_graph")]
    following = [f"{name} is left off: it needs hand_written" for name in needing]
    assert sorted(notes) == sorted([*clashing, *following])


def test_an_unknown_preference_is_refused():
    with pytest.raises(UserError, match=r"Unknown switch 'bf-16'\. Did you mean bf16"):
        resolve((), (), ("bf-16",))


def test_every_need_of_a_switch_is_one_that_can_be_looked_up():
    assert {need for switch in LADDER for need in switch.machine} <= set(hardware.NEEDS)


def test_a_preset_prefers_and_the_run_says_what_it_had_to_leave_off(machine):
    machine(bf16="an abacus", cuda="a CUDA device")
    job = prepare("snake", settings={**TINY_SNAKE, "switches.prefer": ["bf16"]})
    assert "bf16" not in job.switches
    parts = build(job.config, job.kind, "cpu")
    assert parts.switches == job.switches
    assert parts.notes == ["left off, for want of an abacus: bf16"]


@pytest.mark.parametrize(
    ("need", "device", "missing"),
    [("cuda", "cpu", "a CUDA device"), ("cuda", "mps", "a CUDA device"), ("cuda", "cuda", ""), ("cuda", "cuda:1", "")],
)
def test_a_cuda_device_is_the_one_that_was_chosen(need, device, missing):
    assert hardware.lacks(need, device) == missing


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        ({"avx2", "avx512f"}, "a CPU with bfloat16 instructions"),
        ({"avx512_bf16"}, ""),
        ({"amx_bf16", "amx_tile"}, ""),
        (set(), "a CPU with bfloat16 instructions"),
    ],
)
def test_bfloat16_needs_instructions(flags, missing, monkeypatch):
    monkeypatch.setattr(hardware, "_cpu_flags", lambda: flags)
    found = hardware._bf16.__wrapped__("cpu")
    assert found.startswith(missing)
    assert bool(found) == bool(missing)


def test_a_compiler_needs_headers_too(monkeypatch, tmp_path):
    look = hardware._compiler.__wrapped__
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "C++ compiler" in look("cpu")
    monkeypatch.setattr("shutil.which", lambda name: "/bin/clang++" if name == "clang++" else None)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    assert "Python.h" in look("cpu")
    (tmp_path / "Python.h").touch()
    assert look("cpu") == ""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "triton" in look("cuda")
    assert look("cpu") == ""


def test_a_default_that_adds_to_another_switch_comes_with_it_and_is_not_missed_without():
    plain, notes = resolve((), (), device="cpu")
    assert not BESIDE_BF16 & plain
    assert notes == []
    with pytest.raises(UserError, match="The switch shadow_weights needs bf16"):
        resolve(("shadow_weights",), ())
    assert resolve((), (), ("shadow_weights",))[1] == ["shadow_weights is left off: it needs bf16"]
