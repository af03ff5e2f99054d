"""FAKE records for the tests of the report: plausible numbers that nobody measured. Never to be committed as records."""

import json
import math
import random
from pathlib import Path
from typing import Any

LAPTOP = {
    "cpu": "FAKE CPU @ 2.20GHz",
    "cores": 4,
    "usable_cores": 2,
    "memory_gb": 24.0,
    "gpu": None,
    "system": "Linux x86_64",
    "python": "3.11.2",
    "versions": {"fastdqn": "0.2.0", "torch": "2.13.0", "numpy": "2.4.6", "numba": "0.68.1", "gymnasium": "1.4.0"},
    "commit": "fa4e00000000",
}
SERVER = LAPTOP | {"cpu": "FAKE Server CPU", "cores": 16, "usable_cores": 16, "memory_gb": 128.0, "gpu": "FAKE H200"}
CONFIG = {
    "env": {"dim": 10, "max_steps": 500},
    "learner": {"batch_size": 64, "learning_rate": 0.0005, "double": True},
    "replay": {"capacity": 100_000, "warmup_steps": 5_000, "n_step": 3},
    "limits": {"steps": 500_000, "target": 15.0},
}
TARGET, SEEDS = 15.0, 8


def write_fake_records(folder: Path) -> list[Path]:
    """One record of every kind, each in its own folder. Returns the folders."""
    makers = (fake_ladder, fake_gpu_ladder, fake_peers, fake_sweep, fake_profile, fake_envs, fake_throughput, fake_run)
    return [write_record(folder, make()) for make in makers]


def write_record(folder: Path, record: dict[str, Any]) -> Path:
    """`record["metrics"]` goes into metrics.jsonl beside it."""
    record = dict(record)
    points = record.pop("metrics", [])
    place = folder / record["id"]
    place.mkdir(parents=True)
    (place / "record.json").write_text(json.dumps(record, indent=1))
    if points:
        (place / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    return place


def fake_record(kind: str, name: str, title: str, command: str, rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "kind": kind,
        "id": f"2026-11-15-fake-{name}",
        "title": title,
        "command": command,
        "date": "2026-11-15T23:40:00+0000",
        "complete": True,
        "notes": ["FAKE numbers, made up for a test."],
        "machine": LAPTOP,
        "env_id": "fastdqn/Snake-v0",
        "protocol": "snake",
        "config": CONFIG,
        "measuring": {"seconds": 10, "repeats": 3, "seeds": SEEDS, "warmup_seconds": 3, "target": TARGET},
        "rows": rows,
        "ceiling": None,
    } | more


def around(value: float, share: float = 0.02) -> list[float]:
    return [value * (1 - share), value * (1 + share)]


def speed_row(speed: float, change: float | None, verdict: str, learning: str, **more: Any) -> dict[str, Any]:
    return {
        "steps_per_second": speed,
        "interval": around(speed, 0.025),
        "change": change,
        "change_interval": None if change is None else around(change, 0.03),
        "updates_per_second": speed / 16,
        "samples_per_step": 4.0,
        "cpu_percent": 178.0,
        "gpu_percent": None,
        "rss_mb": 512.0,
        "gpu_memory_mb": None,
        "speed_verdict": verdict,
        "learning_verdict": learning,
        "learning": None if learning == "not measured" else {"verdict": learning, "reason": "Difference of areas 0.12 (-0.4 to 0.6), margin 1.5.", "seeds": SEEDS},  # noqa: E501
        "minutes_to_target": None,
        "minutes_change": None,
        "skipped": "",
        "speeds": around(speed),
    } | more  # fmt: skip


# (adds, speed, change, speed verdict, learning verdict, promise, minutes, what it does)
RUNGS = [
    (None, 1860.0, None, "not measured", "not measured", "", 9.4, "Python environments, a deque of tuples, autograd while acting"),
    ("inference_mode", 1985.0, 1.07, "faster", "learns as well", "SAME_NUMBERS", 8.8, "acts under torch.inference_mode"),
    ("array_replay", 2890.0, 1.46, "faster", "learns as well", "SAME_NUMBERS", 6.1, "transitions in arrays, a batch is one gather"),
    ("frame_ring", 2905.0, 1.01, "no clear difference", "learns as well", "SAME_NUMBERS", 6.0, "each frame stored once"),
    ("lane_vector_env", 4310.0, 1.48, "faster", "learns as well", "SAME_NUMBERS", 4.0, "all lanes in one compiled call"),
    ("fused_optimizer", 4120.0, 0.956, "slower", "undecided", "SAME_DISTRIBUTION", 4.3, "one kernel for all parameters"),
    ("compiled_update", 5410.0, 1.31, "faster", "learns as well", "SAME_DISTRIBUTION", 3.2, "the update as one compiled function"),
    ("bf16", None, None, "not measured", "not measured", "SAME_LEARNING", None, "forward passes in bfloat16"),
]  # fmt: skip


def _split(rank: int) -> dict[str, float]:
    env, act, store, sample = 0.30 / (1 + rank), 0.16 / (1 + rank / 3), 0.05 / (1 + rank / 4), 0.22 / (1 + rank / 2)
    other = 0.015
    return {"env": env, "act": act, "store": store, "sample": sample, "learn": 1 - env - act - store - sample - other, "other": other}  # noqa: E501


def fake_ladder() -> dict[str, Any]:
    rows = []
    for rank, (adds, speed, change, verdict, learning, promise, minutes, summary) in enumerate(RUNGS):
        names = {"rung": f"+ {adds}" if adds else "textbook", "adds": adds, "part": "ladder", "promise": promise}
        if speed is None:
            empty = dict.fromkeys(speed_row(1.0, None, verdict, learning)) | {"skipped": "needs a CUDA device"}
            rows.append(empty | names | {"summary": summary, "speed_verdict": verdict, "learning_verdict": learning})
            continue
        more = {"vs_textbook": speed / 1860, "split": _split(rank), "summary": summary, "rss_mb": 910.0 - 60 * rank}
        more |= {"minutes_to_target": minutes, "minutes_change": None if adds is None else 1 / (change or 1)}
        rows.append(speed_row(speed, change, verdict, learning, **names, **more))
    trade = {"rung": "half the updates", "adds": "half_updates", "part": "extra", "promise": "TRADE", "summary": "an update every 32 steps"}  # noqa: E501
    rows.append(speed_row(8650.0, 1.6, "faster", "learns worse", **trade, samples_per_step=2.0, vs_textbook=4.65, split=_split(8)))
    for name, speed, change, verdict in (("array_replay", 3420.0, 0.63, "slower"), ("frame_ring", 5390.0, 0.997, "no clear difference")):  # noqa: E501
        left_out = {"rung": f"without {name}", "adds": None, "part": "leave_one_out", "promise": "SAME_NUMBERS", "summary": ""}
        rows.append(speed_row(speed, change, verdict, "not measured", **left_out, vs_textbook=speed / 1860, split=_split(6)))
    ceiling = {"steps_per_second": 9800.0, "words": "the arithmetic alone at 61 GFLOP/s plus the environment alone", "share": 5410 / 9800, "env_alone": 2.5e6}  # noqa: E501
    command = "fastdqn bench ladder snake --repeats 3 --seconds 10 --learning --seeds 8"
    record = fake_record("ladder", "ladder-snake-2-cores", "The ladder on Snake 10x10", command, rows, ceiling=ceiling)
    speeds = {row["rung"]: row["steps_per_second"] for row in rows if row["steps_per_second"] and row["part"] != "leave_one_out"}
    return record | {"metrics": fake_curves("rung", speeds, slow=("half the updates",))}


def fake_curves(key: str, speeds: dict[str, float], slow: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    dice, points = random.Random(0), []
    for name, speed in speeds.items():
        for seed in range(SEEDS):
            pace, wobble = (0.55 if name in slow else 1.0) * dice.uniform(0.85, 1.15), dice.uniform(0.9, 1.1)
            for step in range(25_000, 500_001, 25_000):
                score = 17 * wobble * (1 - math.exp(-pace * step / 190_000)) + dice.gauss(0, 0.5)
                seconds = step / speed * dice.uniform(0.98, 1.02)
                points.append({key: name, "seed": seed, "step": step, "seconds": seconds, "score": round(max(score, 0), 2)})
    return points


def fake_gpu_ladder() -> dict[str, Any]:
    """A GPU, no learning, a ceiling far beyond the bars."""
    rows = []
    for adds, speed, change in ((None, 640.0, None), ("native_atari", 1080.0, 1.69), ("cuda_graph", 9850.0, 9.12)):
        names = {"rung": f"+ {adds}" if adds else "textbook", "adds": adds, "part": "ladder", "promise": "SAME_NUMBERS"}
        verdict = "faster" if adds else "not measured"
        more = {"gpu_percent": 61.0, "gpu_memory_mb": 2950.0, "rss_mb": 10_850.0, "samples_per_step": 8.0, "vs_textbook": speed / 640}
        rows.append(speed_row(speed, change, verdict, "not measured", **names, **more, summary="", split=_split(len(rows))))
    ceiling = {"steps_per_second": 74_000.0, "words": "the emulator alone with the same lanes", "share": 0.133, "env_alone": 74_000.0}
    return fake_record(
        "ladder", "ladder-pong-h200", "The ladder on Pong, Nature network", "fastdqn bench ladder pong --repeats 3", rows,
        ceiling=ceiling, machine=SERVER, env_id="ALE/Pong-v5", protocol="classic", date="2026-11-14T09:10:00+0000",
    )  # fmt: skip


def fake_peers() -> dict[str, Any]:
    rows = []
    for name, speed, ratio, precision in (
        ("fastdqn default", 5380.0, 4.1, "fp32"),
        ("fastdqn bf16", 5900.0, 4.5, "bf16"),
        ("fastdqn textbook", 1290.0, 0.984, "fp32"),
        ("stable-baselines3", 1311.0, None, "fp32"),
    ):
        spread = None if ratio is None else around(ratio, 0.04)
        rows.append({
            "name": name, "steps_per_second": speed, "interval": around(speed), "samples_per_step": 4.0, "cpu_percent": 171.0,
            "rss_mb": 620.0, "ratio": ratio, "ratio_interval": spread, "precision": precision,
            "details": {"lanes": 16, "threads": 2},
        })  # fmt: skip
    command = "fastdqn bench peers snake --repeats 5"
    return fake_record("peers", "peers-snake", "Against stable-baselines3 on Snake 10x10", command, rows)


def fake_sweep() -> dict[str, Any]:
    rows = []
    for value, speed, learning, minutes in (
        (32, 8100.0, "undecided", 3.6),
        (64, 5400.0, "learns as well", 3.2),
        (128, 3300.0, "learns as well", 4.1),
        (256, 1850.0, "learns worse", None),
    ):
        verdict = "not measured" if value == 32 else "slower"
        more = {"value": str(value), "key": "learner.batch_size", "samples_per_step": value / 16, "minutes_to_target": minutes}
        rows.append(speed_row(speed, speed / 8100, verdict, learning, **more))
    command = "fastdqn bench sweep snake learner.batch_size 32 64 128 256"
    record = fake_record("sweep", "sweep-batch", "Batch size on Snake 10x10", command, rows)
    return record | {"metrics": fake_curves("rung", {row["value"]: row["steps_per_second"] for row in rows}, slow=("256",))}


def fake_profile() -> dict[str, Any]:
    rows = [
        {"part": "learn", "share": 0.78, "steps_per_second": 6060.0, "words": "without the optimizer step: +12 % steps/s"},
        {"part": "sample", "share": 0.08, "steps_per_second": 5830.0, "words": "with one batch drawn again and again: +8 % steps/s"},
        {"part": "env", "share": 0.05, "steps_per_second": 5650.0, "words": "with an environment that does nothing: +4 % steps/s"},
    ]
    advice = "Most of the time goes into updates: a faster environment would bring 4 % at most."
    return fake_record(
        "profile", "profile-snake", "Where a step of Snake spends its time", "fastdqn profile snake", rows, advice=advice,
        split=_split(6),
    )  # fmt: skip


def fake_envs() -> dict[str, Any]:
    rows = []
    for threads in (1, 2):
        for lanes in (1, 8, 64, 512, 4096):
            speed = 2.4e6 * threads**0.8 * lanes / (lanes + 30)
            rows.append({"lanes": lanes, "threads": threads, "steps_per_second": speed, "interval": around(speed, 0.03)})
    return fake_record("envs", "envs-snake", "Snake alone, by lanes and threads", "fastdqn bench envs snake", rows)


def fake_throughput() -> dict[str, Any]:
    rows = [{"label": f"{lanes} lanes", "steps_per_second": speed, "interval": around(speed)} for lanes, speed in ((1, 2100.0), (16, 5400.0))]  # noqa: E501
    return fake_record("throughput", "throughput", "Throughput by lanes", "fastdqn bench throughput snake", rows)


def fake_run() -> dict[str, Any]:
    rows = [{"step": step, "seconds": step / 5400, "score_mean": 16 * (1 - math.exp(-step / 150_000)), "eval": None} for step in range(10_000, 500_001, 10_000)]  # noqa: E501
    return fake_record("run", "run-snake", "A whole run on Snake 10x10", "fastdqn train snake --steps 500k", rows, complete=False)
