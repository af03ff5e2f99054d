"""The same work by the code of another checkout and by this one, in turns.

    python benchmarks/before_after.py OTHER NAME ENV [KEY=VALUE ...]

OTHER is the other checkout's folder. The record is a sweep of two rows, `before` (its commit stands in the notes) and `now`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from fastdqn.bench import sweep
from fastdqn.bench.conduct import Measuring, Variant
from fastdqn.bench.identity import subject_of_job
from fastdqn.bench.record import Keeper
from fastdqn.bench.table import show
from fastdqn.bench.work import make_work
from fastdqn.config import parse_assignment

WORKER = """import os, runpy, sys
sys.path.insert(0, os.environ["FASTDQN_BEFORE"])
runpy.run_module("fastdqn.bench.worker", run_name="__main__")
"""


def main(other: str, name: str, env: str, *settings: str) -> None:
    work = make_work(env, None, dict(map(parse_assignment, settings)))
    measuring = Measuring(seconds=4.0, repeats=3)
    keeper = Keeper("sweep", subject_of_job(work.job), vars(measuring), "benchmarks/records", name)
    commit = subprocess.run(
        ["git", "-C", other, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
    )
    keeper.record["notes"].append(f"before: the code of commit {commit.stdout.strip()}; now: that of this record's commit.")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "before_worker.py").write_text(WORKER)
        os.environ["FASTDQN_BEFORE"] = str(Path(other, "src").absolute())
        os.environ["PYTHONPATH"] = folder

        def variant(row: str, task: dict[str, object]) -> Variant:
            return Variant(row, task, "before_worker") if row == "before" else Variant(row, task)

        with mock.patch.object(sweep, "Variant", variant):
            sweep.run_sweep(work, {"before": {}, "now": {}}, measuring, keeper)
    show(keeper.record)


if __name__ == "__main__":
    main(*sys.argv[1:])
