"""FAKE records for the tests of the report: plausible numbers that nobody measured. Never to be committed as records."""

import json
import math
import random
from pathlib import Path
from typing import Any

LAPTOP = {
    "date": "2026-11-15",
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
    "learner": {"batch_size": 64, "lr": 0.0005, "double": True},
    "replay": {"capacity": 100_000, "warmup_steps": 5_000, "n_step": 3},
    "limits": {"steps": 500_000, "target": None},
}
TARGET, SEEDS, TEXTBOOK_SPEED = 15.0, 8, 1860.0
Json = dict[str, Any]


def write_fake_records(folder: Path) -> list[Path]:
    """One record of every kind, a ladder on a GPU beside them, each in its own folder. Returns the folders."""
    makers = [fake_ladder, fake_gpu_ladder, fake_peers, fake_sweep, fake_growth, fake_profile, fake_envs, fake_throughput]
    return [write_record(folder, make()) for make in [*makers, fake_runs]]


def write_record(folder: Path, record: Json) -> Path:
    """`record["metrics"]` goes into metrics.jsonl beside it."""
    record = dict(record)
    points = record.pop("metrics", [])
    place = folder / record["id"]
    place.mkdir(parents=True)
    (place / "record.json").write_text(json.dumps(record, indent=1))
    if points:
        (place / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    return place


def fake_record(kind: str, name: str, title: str, command: str, rows: list[Json], **more: Any) -> Json:
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
        "env_id": "snake",
        "protocol": "snake",
        "config": CONFIG,
        "device": "cpu",
        "switches": ["array_replay", "inference_mode"],
        "measuring": {
            "seconds": 10.0,
            "repeats": 3,
            "seeds": SEEDS,
            "timed": True,
            "jobs": 1,
            "target": None,
            "steps": None,
        },
        "rows": rows,
        "ceiling": None,
    } | more


def around(value: float, share: float = 0.02) -> list[float]:
    return [value * (1 - share), value * (1 + share)]


def speed_row(speed: float, change: float | None, verdict: str, learning: str, **more: Any) -> Json:
    reason = "Difference of areas 0.12 (-0.4 to 0.6), margin 1.5: a loss beyond the margin is ruled out."
    judged = {"verdict": learning, "reason": reason, "seeds": SEEDS, "target": TARGET}
    return {
        "steps_per_second": speed,
        "interval": around(speed, 0.025),
        "change": change,
        "change_interval": None if change is None else around(change, 0.03),
        "speed_verdict": verdict,
        "updates_per_second": speed / 16,
        "samples_per_step": 4.0,
        "cpu_percent": 178.0,
        "others_cpu_percent": 3.0,
        "gpu_percent": None,
        "rss_mb": 512.0,
        "gpu_memory_mb": None,
        "threads": 2,
        "learning_verdict": learning,
        "learning": None if learning == "not measured" else judged,
        "minutes_to_target": None,
        "minutes_change": None,
        "skipped": "",
        "speeds": [{"steps_per_second": speed, "windows": around(speed)}],
    } | more


def fake_split(rank: float) -> dict[str, float]:
    """The environment and the replay get faster with the rank, so that learning takes a larger share."""
    shares = {"env": 0.30 / (1 + rank), "act": 0.16 / (1 + rank / 3), "store": 0.05 / (1 + rank / 4)}
    shares |= {"sample": 0.22 / (1 + rank / 2), "other": 0.015}
    return shares | {"learn": 1 - sum(shares.values())}


# (adds, speed, change, speed verdict, learning verdict, promise, what it does)
RUNGS: list[tuple[Any, ...]] = [
    (None, TEXTBOOK_SPEED, None, "not measured", "reference", None, "one environment, a deque of tuples"),
    ("inference_mode", 1985.0, 1.07, "faster", "learns as well", "SAME_NUMBERS", "acts under torch.inference_mode"),
    ("array_replay", 2890.0, 1.46, "faster", "learns as well", "SAME_NUMBERS", "transitions in arrays"),
    ("frame_ring", 2905.0, 1.01, "no clear difference", "learns as well", "SAME_NUMBERS", "each frame stored once"),
    ("lane_vector_env", 4310.0, 1.48, "faster", "learns better", "SAME_NUMBERS", "all lanes in one compiled call"),
    ("fused_optimizer", 4120.0, 0.956, "slower", "undecided", "SAME_DISTRIBUTION", "one kernel for all parameters"),
    ("compiled_update", 5410.0, 1.31, "faster", "learns as well", "SAME_DISTRIBUTION", "the update as one function"),
]


def fake_ladder() -> Json:
    rows = []
    for rank, (adds, speed, change, verdict, learning, promise, summary) in enumerate(RUNGS):
        row = speed_row(speed, change, verdict, learning, part="ladder", promise=promise, summary=summary)
        row |= {
            "rung": f"+ {adds}" if adds else "textbook",
            "adds": adds,
            "split": fake_split(rank),
            "rss_mb": 910.0 - 60 * rank,
        }
        row |= {"minutes_to_target": 400_000 / speed / 60, "minutes_change": TEXTBOOK_SPEED / speed}
        rows.append(row | (_versus_textbook(speed) if adds else {}))
    rows.append({
        "rung": "default + bf16", "part": "extra", "adds": "bf16", "promise": "SAME_LEARNING", "switches": ["bf16"],
        "summary": "forward passes in bfloat16", "skipped": "needs a processor with bfloat16 arithmetic",
        "speed_verdict": "not measured", "learning_verdict": "not measured",
    })  # fmt: skip
    half = speed_row(
        8650.0, 1.6, "faster", "learns worse", part="extra", promise="TRADE", summary="an update every 32 steps"
    )
    half |= {"rung": "default + half_updates", "adds": "half_updates", "samples_per_step": 2.0, "others_cpu_percent": 41.0}
    rows.append(half | _versus_textbook(8650.0) | {"split": fake_split(8)})
    without = (("array_replay", 3420.0, 0.63, "slower"), ("frame_ring", 5390.0, 0.997, "no clear difference"))
    for name, speed, change, verdict in without:
        row = speed_row(speed, change, verdict, "not measured", part="leave_one_out", promise="SAME_NUMBERS", summary="")
        row |= {"rung": f"default without {name}", "adds": name, "split": fake_split(6)}
        rows.append(row | _versus_textbook(speed))
    words = "3.1 MFLOP a step at the 61 GFLOP/s of a large matrix product (float32, cpu), and the environment alone"
    ceiling = {"steps_per_second": 9800.0, "words": words, "share": 8650 / 9800, "env_alone": 2.5e6}
    command = "fastdqn bench ladder snake --repeats 3 --to-target --seeds 8 --leave-one-out"
    record = fake_record("ladder", "ladder-snake-2-cores", "The ladder on Snake 10x10", command, rows, ceiling=ceiling)
    speeds = {row["rung"]: row["steps_per_second"] for row in rows if row.get("learning")}
    return record | {"metrics": fake_curves(speeds, slow="default + half_updates")}


def _versus_textbook(speed: float) -> Json:
    return {"vs_textbook": speed / TEXTBOOK_SPEED, "vs_textbook_interval": around(speed / TEXTBOOK_SPEED, 0.03)}


def fake_curves(speeds: dict[str, float], slow: str = "") -> list[Json]:
    dice, points = random.Random(0), []
    for name, speed in speeds.items():
        for seed in range(SEEDS):
            pace, wobble = (0.55 if name == slow else 1.0) * dice.uniform(0.85, 1.15), dice.uniform(0.9, 1.1)
            for step in range(25_000, 500_001, 25_000):
                score = max(17 * wobble * (1 - math.exp(-pace * step / 190_000)) + dice.gauss(0, 0.5), 0.0)
                seconds = step / speed * dice.uniform(0.98, 1.02)
                points.append({"rung": name, "seed": seed, "step": step, "seconds": seconds, "score": round(score, 2)})
    return points


def fake_gpu_ladder() -> Json:
    """A GPU, learning not measured, a ceiling far beyond the bars."""
    rows = []
    for adds, speed, change in ((None, 640.0, None), ("native_atari", 1080.0, 1.69), ("cuda_graph", 9850.0, 9.12)):
        row = speed_row(speed, change, "faster" if adds else "not measured", "not measured", part="ladder", summary="")
        row |= {"rung": f"+ {adds}" if adds else "textbook", "adds": adds, "promise": "SAME_NUMBERS" if adds else None}
        row |= {"gpu_percent": 61.0, "gpu_memory_mb": 2950.0, "rss_mb": 10_850.0, "samples_per_step": 8.0}
        rows.append(row | {"split": fake_split(len(rows))} | ({"vs_textbook": speed / 640} if adds else {}))
    ceiling = {"steps_per_second": 74_000.0, "words": "the emulator alone with the same lanes", "share": 0.133}
    title, command = "The ladder on Pong, Nature network", "fastdqn bench ladder pong --repeats 3"
    date = "2026-11-14T09:10:00+0000"
    more = {"ceiling": ceiling, "machine": SERVER, "env_id": "pong", "protocol": "classic", "date": date, "device": "cuda"}
    return fake_record("ladder", "ladder-pong-h200", title, command, rows, **more)


def fake_peers() -> Json:
    rows = []
    for name, speed, ratio, precision in (
        ("plain script of the books", 1450.0, 1.106, "fp32"),
        ("stable-baselines3 DQN", 1311.0, None, "fp32"),
        ("fastdqn textbook", 1290.0, 0.984, "fp32"),
        ("fastdqn default in fp32", 5380.0, 4.1, "fp32"),
        ("fastdqn default", 5900.0, 4.5, "bf16"),
    ):
        row = speed_row(speed, ratio, "not measured", "not measured", name=name, ratio=ratio, precision=precision)
        row |= {"ratio_interval": None if ratio is None else around(ratio, 0.04), "details": {"lanes": 16, "threads": 2}}
        rows.append(row)
    command = "fastdqn bench peers snake --repeats 5"
    return fake_record("peers", "peers-snake", "Snake 10x10 beside other programs", command, rows)


def fake_sweep() -> Json:
    rows = []
    for value, speed, learning, minutes in (
        (32, 8100.0, "reference", 3.6),
        (64, 5400.0, "learns as well", 3.2),
        (128, 3300.0, "undecided", 4.1),
        (256, 1850.0, "learns worse", None),
    ):
        name = f"batch_size={value}"
        change, verdict = (None, "not measured") if value == 32 else (speed / 8100, "slower")
        row = speed_row(speed, change, verdict, learning, value=name, rung=name, settings={"learner.batch_size": value})
        rows.append(row | {"samples_per_step": value / 16, "minutes_to_target": minutes})
    command = "fastdqn bench sweep snake learner.batch_size=32,64,128,256 --to-target"
    record = fake_record("sweep", "sweep-batch", "A sweep on Snake 10x10", command, rows)
    speeds = {row["value"]: row["steps_per_second"] for row in rows}
    return record | {"metrics": fake_curves(speeds, slow="batch_size=256")}


def fake_growth() -> Json:
    rows = [speed_row(5400.0, None, "not measured", "not measured", name="as it is", setting="", settings={})]
    for setting, value, speed, verdict in (
        ("actor.lanes", 16, 4300.0, "slower"),
        ("actor.lanes", 256, 5900.0, "faster"),
        ("learner.batch_size", 32, 8100.0, "faster"),
        ("learner.batch_size", 512, 1700.0, "slower"),
        ("replay.capacity", 10_000, 5410.0, "no clear difference"),
        ("replay.capacity", 2_000_000, 5390.0, "no clear difference"),
    ):
        more = {"name": f"{setting}={value:,}", "setting": setting, "settings": {setting: value}}
        rows.append(speed_row(speed, speed / 5400, verdict, "not measured", **more))
    title, command = "What more work costs on Snake 10x10", "fastdqn bench growth snake"
    base = {"lanes": 64, "batch_size": 128, "capacity": 200_000, "steps_per_update": 32.0}
    return fake_record("growth", "growth-snake", title, command, rows, base=base, bytes_per_row=313.2)


def fake_profile() -> Json:
    rows = [
        speed_row(
            5410.0, None, "not measured", "not measured", part="nothing left out", share=None, words="the run as it is"
        )
    ]
    for part, share, words in (
        ("updates", 0.86, "buffer fill only, no updates"),
        ("sampling", 0.08, "training on one constant batch"),
        ("the optimizer step", 0.11, "without the optimizer step"),
        ("the network when acting", 0.05, "random actions"),
    ):
        more = {"part": part, "share": share, "words": words}
        rows.append(speed_row(5410 / (1 - share), 1 / (1 - share), "faster", "not measured", **more))
    advice = "81% of the time is 'learn'. Learning takes most of the time: another number of threads or a GPU help."
    title, command = "Where the time goes on Snake 10x10", "fastdqn bench profile snake"
    return fake_record("profile", "profile-snake", title, command, rows, advice=advice, split=fake_split(6))


def fake_envs() -> Json:
    rows = [
        {"lanes": 1, "threads": 1, "path": "textbook", "name": "1 lane, the textbook environment", "steps_per_second": 61e3}
    ]
    for threads in (1, 2):
        for lanes in (1, 8, 64, 512, 4096):
            speed = 2.4e6 * threads**0.8 * lanes / (lanes + 30)
            head = {"lanes": lanes, "threads": threads, "path": "fast", "name": f"{lanes} lanes, {threads} threads"}
            rows.append(head | {"steps_per_second": speed})
    rows = [row | {"interval": around(row["steps_per_second"], 0.03)} for row in rows]
    return fake_record("envs", "envs-snake", "Snake 10x10 alone", "fastdqn bench envs snake --lanes 1,8,64,512,4096", rows)


def fake_throughput() -> Json:
    rows = []
    for speed in (2100.0, 2140.0, 2080.0):
        rows.append(
            {"steps_per_second": speed, "by_the_logs_formula": speed * 4.2, "steps": 1190, "updates": 290, "seconds": 0.56}
        )
    return fake_record(
        "throughput", "throughput", "The Snake log's own benchmark", "fastdqn bench throughput --repeats 3", rows
    )


def fake_runs() -> Json:
    """Stopped on the way: not complete."""
    rows, points = [], []
    for seed in range(3):
        run, best = f"cartpole-{seed}", 470.0 + 10 * seed
        rows.append({
            "run": run, "seed": seed, "steps": 60_000, "updates": 30_000, "minutes": 1.9, "mean": best, "median": best,
            "interval": around(best, 0.02), "episodes": 100, "steps_per_second": 640.0, "samples_per_step": 32.0,
        })  # fmt: skip
        for step in range(2_000, 60_001, 2_000):
            score = best * (1 - math.exp(-step / (12_000 + 3_000 * seed)))
            points.append({"rung": run, "seed": seed, "step": step, "seconds": step / 640, "score": score})
    command = "fastdqn bench keep cartpole-0 cartpole-1 cartpole-2 --name runs"
    more = {"complete": False, "env_id": "CartPole-v1", "measuring": {"runs": 3}, "metrics": points}
    return fake_record("run", "runs-cartpole", "Runs on CartPole-v1", command, rows, **more)
