"""Settings: numbers as people type them, presets, precedence, and a sentence for everything that is wrong."""

import pytest
import yaml

from fastdqn.config import (
    Config,
    load_preset,
    make_config,
    parse_assignment,
    parse_number,
    preset_names,
    setting_rows,
    to_yaml,
    validate,
)
from fastdqn.errors import UserError
from fastdqn.prepare import prepare


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e6", 1_000_000),
        ("10M", 10_000_000),
        ("10m", 10_000_000),
        ("200_000", 200_000),
        ("1.5k", 1_500),
        ("2B", 2_000_000_000),
        ("2g", 2_000_000_000),
        ("1e3k", 1_000_000),
        (" 7 ", 7),
        ("-3", -3),
        ("+3", 3),
        (".5", 0.5),
        ("2.5e-4", 2.5e-4),
        ("9007199254740993", 2**53 + 1),  # a float cannot hold it
        (5, 5),
        (0.25, 0.25),
    ],
)
def test_numbers_as_people_type_them(text, number):
    parsed = parse_number(text)
    assert parsed == number
    assert type(parsed) is type(number)


@pytest.mark.parametrize("junk", ["", "k", "M10", "1e", "1 000", "_1", "1..2", "0x10", "ten", "1kk", "nan", None, [1]])
def test_junk_is_handed_back_for_the_type_check(junk):
    assert parse_number(junk) is junk


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_of_the_package_is_valid(name):
    config = make_config("snake", name, {})
    assert config.preset == name
    assert any(limit is not None for limit in config.limits.model_dump().values())
    for section, values in load_preset(name).items():  # what the file says is what the config holds
        for key, value in values.items():
            held = getattr(getattr(config, section), key)
            assert (list(held) if isinstance(held, tuple) else held) == value


def test_the_presets_that_the_issue_names_are_there():
    assert {"snake", "cartpole", "atari", "default"} <= set(preset_names())


def test_the_atari_preset_is_natures():
    config = make_config("pong", "atari", {})
    assert (config.learner.batch_size, config.learner.steps_per_update, config.samples_per_step) == (32, 4, 8)
    assert (config.replay.capacity, config.replay.warmup_steps, config.learner.target_every) == (10**6, 50_000, 10_000)


def test_precedence_default_preset_setting():
    assert Config(env_id="x").learner.lr == 1e-3
    assert make_config("snake", "snake", {}).learner.lr == 2e-3
    assert make_config("snake", "snake", {"learner.lr": "3e-4"}).learner.lr == 3e-4
    assert make_config("snake", "snake", {"learner.lr": "3e-4"}).learner.gamma == 0.95, "the rest stays the preset's"
    assert make_config("snake", "snake", {}).learner.optimizer_eps == 1e-8, "what no preset says is the default"


def refusal(overrides, preset="default"):
    with pytest.raises(UserError) as caught:
        make_config("snake", preset, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "suggested"),
    [
        ("learner.batchsize", "learner.batch_size"),
        ("learner.batch_sise", "learner.batch_size"),
        ("lerner.gamma", "learner.gamma"),
        ("sead", "seed"),
    ],
)
def test_an_unknown_setting_names_the_nearest(key, suggested):
    sentence = refusal({key: 1})
    assert f"Unknown setting '{key.split('.')[0] if key.startswith('lerner') else key}'" in sentence
    assert suggested.split(".")[0] in sentence
    assert "fastdqn settings" in sentence


@pytest.mark.parametrize("key", ["priority_alpha", "priority_beta", "priority_beta_end"])
def test_settings_of_prioritised_replay_need_it(key):
    sentence = refusal({f"replay.{key}": 0.7})
    assert sentence == f"replay.{key}=0.7 is for prioritised replay: set replay.prioritised=true."
    config = make_config("snake", "default", {f"replay.{key}": 0.7, "replay.prioritised": True})
    assert getattr(config.replay, key) == 0.7
    again = validate(yaml.safe_load(to_yaml(make_config("snake", "default", {}))))
    assert not again.replay.prioritised, "a file that names every setting is no wish"


def test_a_setting_without_its_section_finds_it():
    assert "learner.batch_size" in refusal({"batch_size": 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("learner.gamma", 1.01),
        ("learner.gamma", -0.01),
        ("learner.lr", 0),
        ("learner.lr", "nan"),
        ("learner.steps_per_update", 0),
        ("learner.batch_size", 0),
        ("learner.batch_size", 1.5),
        ("learner.batch_size", "many"),
        ("learner.target_tau", 0),
        ("learner.optimizer", "sgd"),
        ("learner.double", "perhaps"),
        ("actor.lanes", 0),
        ("actor.epsilon_end", 1.5),
        ("replay.n_step", 0),
        ("replay.stack", 17),
        ("replay.capacity", 0),
        ("replay.priority_alpha", 1.1),
        ("replay.priority_beta", -0.1),
        ("replay.priority_beta_end", 1.1),
        ("limits.steps", 0),
        ("limits.minutes", 0),
        ("limits.minutes", "inf"),
        ("limits.target", "nan"),
        ("network.hidden", [16, 0]),
        ("network.hidden", [-1]),
        ("network.channels", ["1e9"]),
        ("network.kind", "transformer"),
        ("log.sinks", ["tensorbord"]),
        ("seed", -1),
        ("seed", 2**63),
        ("learner", 5),
    ],
)
def test_a_value_out_of_range_is_named(key, value):
    sentence = refusal({key: value})
    assert sentence.startswith(key)
    assert "must be" in sentence
    assert "\n" not in sentence


def test_a_value_is_not_a_section():
    assert "seed is a value, not a section" in refusal({"seed": 1, "seed.x": 1})


def test_more_groups_than_lanes():
    sentence = refusal({"actor.lanes": 2, "actor.groups": 3})
    assert sentence == "actor.groups=3 is more than actor.lanes=2."


def test_no_limit_at_all():
    assert refusal({"limits.steps": None}) == "set at least one limit: steps, episodes, minutes or target."
    assert make_config("snake", "default", {"limits.steps": None, "limits.minutes": "0.5"}).limits.minutes == 0.5


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("learner.batch_size=128", ("learner.batch_size", 128)),
        ("limits.steps=2M", ("limits.steps", 2_000_000)),
        ("learner.lr=1e-3", ("learner.lr", 0.001)),
        ("network.hidden=[64, 32]", ("network.hidden", [64, 32])),
        ("learner.double=true", ("learner.double", True)),
        ("limits.steps=null", ("limits.steps", None)),
        ("env.name=a=b", ("env.name", "a=b")),
        ("device=", ("device", "")),
    ],
)
def test_assignments(text, pair):
    assert parse_assignment(text) == pair


@pytest.mark.parametrize("text", ["learner.batch_size", "=3", "", "  =1", "network.hidden=[1, 2"])
def test_what_is_no_assignment(text):
    with pytest.raises(UserError, match=r"not a setting|cannot be read"):
        parse_assignment(text)


def test_a_yaml_file_of_the_users_is_a_preset(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("learner: {batch_size: 7}\nlimits: {steps: 1e4}\nenv: {dim: 6}\n")
    config = make_config("snake", str(mine), {"learner.gamma": 0.5})
    assert (config.learner.batch_size, config.limits.steps, config.learner.gamma) == (7, 10_000, 0.5)
    job = prepare("snake", str(mine))
    assert job.config.env["dim"] == 6
    assert prepare("snake", str(mine), {"env.dim": 7}).config.env["dim"] == 7


@pytest.mark.parametrize("content", ["[1, 2]", "just words", "", "a: [", "\x00"])
def test_a_yaml_file_that_holds_no_settings(tmp_path, content):
    mine = tmp_path / "mine.yaml"
    mine.write_text(content)
    with pytest.raises(UserError, match=r"mine\.yaml"):
        make_config("snake", str(mine), {})


@pytest.mark.parametrize("content", ["env: 5", "env: null", "env: [1]"])
def test_an_env_section_that_is_none(tmp_path, content):
    mine = tmp_path / "mine.yaml"
    mine.write_text(content)
    with pytest.raises(UserError, match="'env' is a section"):
        prepare("snake", str(mine))


def test_presets_that_are_not_there(tmp_path):
    with pytest.raises(UserError, match=r"Unknown preset 'snak'\. Did you mean snake"):
        load_preset("snak")
    with pytest.raises(UserError, match="no preset file"):
        load_preset(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize("key", ["env_id", "preset", "imports"])
def test_what_follows_from_the_start_of_a_run_is_no_setting(key):
    """Else the saved config would name an environment that was not played."""
    with pytest.raises(UserError, match=f"'{key}' is no setting"):
        prepare("snake", settings={key: "CartPole-v1"})


@pytest.mark.parametrize("name", preset_names())
def test_what_is_saved_reads_back_equal(name):
    config = make_config("snake", name, {"env.dim": 6, "switches.off": ["frame_ring"], "learner.lr_end": 1e-9})
    assert validate(yaml.safe_load(to_yaml(config))) == config


def test_every_setting_has_its_sentence():
    rows = setting_rows()
    assert len(rows) > 40
    for key, _, meaning in rows:
        assert meaning.endswith("."), key


def test_on_and_off_are_words_in_a_preset_file(tmp_path):
    """YAML takes them for true and false."""
    path = tmp_path / "own.yaml"
    path.write_text("switches: {on: [bf16], off: [no_grad]}\n")
    config = make_config("snake", str(path), {})
    assert config.switches.on == ("bf16",)
    assert config.switches.off == ("no_grad",)
