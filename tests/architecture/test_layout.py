"""The shape of the house: imports point one way, switches are read in build.py only, every switch has file and test."""

import ast
import re
from pathlib import Path

from fastdqn.switches import LADDER

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fastdqn"

# Reading order. A file imports only from layers above its own, or from its own layer.
LAYERS = [
    ["errors", "transition"],
    ["config", "metrics", "seeding", "device"],
    ["env"],
    ["actor"],
    ["replay"],
    ["learner"],
    ["evaluator"],
    ["runner"],
    ["switches", "schedules"],
    ["build", "build_learner", "build_replay"],
    ["run"],
    ["prepare", "processes"],
    ["train", "agent", "play"],
    ["bench"],
    ["tune"],
    ["report"],
    ["commands"],
    ["cli"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py"))


def layer_of(module: str) -> str:
    return module.removeprefix("fastdqn.").split(".")[0]


def imports_of(path: Path):
    """Every module of ours that the file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "fastdqn":
            if node.module == "fastdqn":
                yield from (f"fastdqn.{alias.name}" for alias in node.names)
            else:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("fastdqn."))


def test_imports_point_upwards():
    seen = 0
    for path in FILES:
        own = layer_of(".".join(path.relative_to(SOURCE).with_suffix("").parts))
        assert own in RANK, f"{path} has no layer: add it to LAYERS at the place where a reader should meet it"
        for module in imports_of(path):
            name = layer_of(module)
            if name == "__version__":
                continue
            assert RANK[name] <= RANK[own], f"{path.relative_to(SOURCE)}: {own} imports {name}, which stands below it"
            seen += 1
    assert seen > 300


def test_the_reference_knows_nothing_of_its_faster_variants():
    """learner/ and replay/ read by themselves; learner/fast/, replay/fast/ and replay/textbook/ build on them."""
    for path in FILES:
        own = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if own.startswith(("learner.", "replay.")) and own.count(".") == 1:
            variants = [module for module in imports_of(path) if re.search(r"\.(fast|textbook)\b", module)]
            assert not variants, f"{own} imports {variants}"


def strings_of(path: Path):
    """String constants that are no docstrings."""
    tree = ast.parse(path.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def test_only_build_asks_whether_a_switch_is_on():
    """A switch's name stands in switches.py and build.py. `lanes_switch` of an EnvKind names the switch, it asks nothing;
    neither does device/hardware.py, where bf16 is what a machine can compute in."""
    allowed = {
        "switches.py",
        "build.py",
        "build_learner.py",
        "build_replay.py",
        "device/hardware.py",
        "env/kind.py",
        "env/atari.py",
    }
    names = {switch.name for switch in LADDER}
    for path in FILES:
        relative = str(path.relative_to(SOURCE))
        found = names & set(strings_of(path))
        assert not found or relative in allowed, f"{relative} knows of the switch {found}"


def test_every_switch_has_its_file_and_its_test():
    tests = "".join(path.name + path.read_text() for path in (ROOT / "tests" / "equivalence").glob("*.py"))
    for switch in LADDER:
        assert (SOURCE / switch.file).is_file(), f"{switch.name}: {switch.file} is not there"
        assert switch.name in tests, f"tests/equivalence says nothing of {switch.name}"


def test_every_file_says_what_it_is_for_and_holds_one_idea():
    for path in FILES:
        text, name = path.read_text(), path.relative_to(SOURCE)
        assert ast.get_docstring(ast.parse(text)), f"{name}: the first line of a file says what it is for"
        assert len(text.splitlines()) <= 450, f"{name} has {len(text.splitlines())} lines"


def test_heavy_libraries_are_imported_where_they_are_used():
    """--help needs none of them; matplotlib, numba, PIL and cv2 cost 0.5 to 1.5 s each."""
    for path in FILES:
        tree = ast.parse(path.read_text())
        top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        names = {alias.name.split(".")[0] for node in top if isinstance(node, ast.Import) for alias in node.names}
        names |= {str(node.module).split(".")[0] for node in top if isinstance(node, ast.ImportFrom)}
        heavy = names & {"matplotlib", "numba", "PIL", "cv2", "imageio_ffmpeg", "tensorboard", "ale_py"}
        heavy |= {node.module for node in top if isinstance(node, ast.ImportFrom) and node.module == "fastdqn.device.kernel"}
        of_kernels = path.stem.endswith(("kernel", "kernels"))  # themselves imported where they are used
        assert not heavy or of_kernels, f"{path} imports {heavy} at its top"
