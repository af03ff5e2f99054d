"""keep_memory promises SAME_NUMBERS. It is a flag of the process and for good, so each side is a process of its own."""

import json
import subprocess
import sys

import pytest

from fastdqn.device.kept_memory import has_mallopt

pytestmark = pytest.mark.skipif(not has_mallopt(), reason="needs the GNU C library")

# A block so large that the C library never keeps it by itself (40 MB); smaller ones it keeps or not, as it happens
PAGE_FAULTS = """
import json, resource, sys
import torch
from fastdqn.build import set_process_flags
torch.set_num_threads(1)
set_process_flags(frozenset(sys.argv[1:]))

def use_and_free():
    torch.ones(10_000_000)

for _ in range(5):
    use_and_free()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    use_and_free()
print(json.dumps((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20))
"""
WEIGHTS = """
import json, sys
import torch
from fastdqn.prepare import prepare
from fastdqn.run.probe import Probe
torch.set_num_threads(1)
off = [] if "keep_memory" in sys.argv else ["keep_memory"]
settings = {"switches.off": off, "learner.threads": 1, "replay.warmup_steps": 100, "replay.capacity": 2000}
job = prepare("catch", settings=settings)
assert ("keep_memory" in job.switches) == (not off)
probe = Probe(job.config, job.kind, "cpu")
probe.runner.start()
probe.parts.ratio.warmup_steps = 100
while probe.parts.learner.updates < 20:
    probe.runner.round()
print(json.dumps([float(weight.double().sum()) for weight in probe.parts.learner.online.parameters()]))
"""


def said_by(program, *switches):
    done = subprocess.run([sys.executable, "-c", program, *switches], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_large_blocks_are_not_paged_in_again():
    pages = 10_000_000 * 4 // 4096
    assert said_by(PAGE_FAULTS) > pages / 2, "without the switch there is nothing to gain on this machine"
    assert said_by(PAGE_FAULTS, "keep_memory") < pages / 20


@pytest.mark.slow
def test_the_same_weights():
    assert said_by(WEIGHTS, "keep_memory") == said_by(WEIGHTS)
