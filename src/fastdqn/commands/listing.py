"""What `fastdqn envs`, `fastdqn switches` and `fastdqn settings` print."""

import importlib.util
import textwrap
from typing import Any

from rich.console import Console
from rich.table import Table


def env_lines() -> list[str]:
    from fastdqn.env.atari_games import ATARI_GAMES

    installed = importlib.util.find_spec("ale_py") is not None
    note = "" if installed else "   (not installed: pip install 'fastdqn[atari]')"
    lines = [
        "snake      Snake on a board, thousands of boards at once. Settings: env.dim=10, env.max_steps=500, ...",
        "catch      84x84 pixels: catch a ball whose direction only a stack of frames shows",
        f"Atari      {len(ATARI_GAMES)} games{note}: pong, PongNoFrameskip-v4 (classic) or ALE/Pong-v5 (machado)",
        *textwrap.wrap(" ".join(ATARI_GAMES), 110, initial_indent="           ", subsequent_indent="           "),
        "Gymnasium  any id with a Discrete action space and a Box observation; with few dependencies:",
    ]
    ids = " ".join(_gymnasium_ids())
    lines += textwrap.wrap(ids, 110, initial_indent="           ", subsequent_indent="           ")
    lines.append("your own   --import my_package, or in Python: fastdqn.train(lambda: MyEnv())")
    return lines


def print_switches() -> None:
    from fastdqn.switches import LADDER

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("switch", "default", "promise", "what it does"):
        table.add_column(heading, overflow="fold")
    for switch in LADDER:
        default = "on" if switch.default else "off"
        table.add_row(switch.name, default, switch.promise.name.lower(), switch.summary)
    console = Console(highlight=False)
    console.print(table)
    console.print("\nTurn them on and off with --on a,b and --off c. A model trained under any set loads under any other.")


def print_settings(env: str | None = None) -> None:
    from fastdqn.config import preset_names, setting_rows

    values = _values_for(env) if env else {}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("setting", f"for {env}" if env else "default", "meaning"):
        table.add_column(heading, overflow="fold")
    for key, default, meaning in setting_rows():
        if "." in key or key in ("seed", "device"):
            table.add_row(key, _shown(values.get(key, default)), meaning)
    for key, value in values.items():
        if key.startswith("env."):
            table.add_row(key, _shown(value), "")
    console = Console(highlight=False)
    console.print(table)
    hint = "" if env else " `fastdqn settings snake` shows what `fastdqn train snake` uses."
    console.print(f"\nSet them with --set key=value. Presets ({', '.join(preset_names())}) change the defaults.{hint}")


def _values_for(env: str) -> dict[str, Any]:
    """Dotted key -> value, as a run of this environment would have it."""
    from fastdqn.prepare import prepare

    values: dict[str, Any] = {}
    config = prepare(env, settings={"device": "cpu"}).config  # a fixed device, so that nothing is measured
    for section, content in config.model_copy(update={"device": "auto"}).model_dump().items():
        if isinstance(content, dict):
            values |= {f"{section}.{name}": value for name, value in content.items()}
        else:
            values[section] = content
    return values


def _gymnasium_ids() -> list[str]:
    import gymnasium

    newest: dict[str, str] = {}
    for env_id, spec in gymnasium.registry.items():
        if "/" not in env_id and str(spec.entry_point).startswith("gymnasium.envs.classic_control"):
            newest[env_id.rsplit("-v", 1)[0]] = env_id
    continuous = {"Pendulum", "MountainCarContinuous"}
    return [env_id for name, env_id in sorted(newest.items()) if name not in continuous]


def _shown(default: Any) -> str:
    if default is None:
        return "unset"
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)
