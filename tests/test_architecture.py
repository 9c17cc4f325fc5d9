"""The code keeps to docs/architecture.md: who imports whom, who prints, who asks for the time, who knows MPI."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

from macmpi import config

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "macmpi"

ERRORS = frozenset({"macmpi"})
MATHEMATICS = (
    *(
        "layers",
        "tape",
        "chain",
        "losses",
        "symmetric",
        "objective",
        "joint",
        "regression",
        "penalty",
        "solvers",
        "state",
        "refusals",
        "deals",
        "choices",
        "plan",
    ),
    *(
        "build",
        "layer_refusals",
        "evaluation",
        "subproblems",
        "pieces",
        "ring",
        "submodels",
        "parmac",
        "fitting",
        "mac",
        "selection",
        "alternating",
        "acceleration",
        "curvature",
        "sums",
        "points",
        "stochastic_start",
        "moves",
        "running",
        "stochastic",
        "baselines",
        "starts",
        "embedding",
    ),
)

MAY_IMPORT: dict[str, frozenset[str]] = {
    "macmpi": frozenset(),
    # plain arithmetic on indices
    "tiles": frozenset(),
    "streams": frozenset(),
    # the mathematics
    "layers": frozenset(),
    "embedding": frozenset({"streams", "layers"}),
    "tape": frozenset({"layers"}),
    "chain": frozenset({"layers", "tape"}),
    "losses": frozenset({"layers", "tape"}),
    "objective": frozenset({"layers", "tape", "chain", "losses"}),
    "joint": frozenset({"tiles", "layers"}),
    "regression": frozenset({"layers", "chain", "losses", "joint"}),
    "penalty": ERRORS,
    "solvers": frozenset(
        {"tiles", "streams", "layers", "tape", "chain", "losses", "objective", "regression", "symmetric"}
    ),
    "state": frozenset({"layers"}),
    "build": frozenset({"layers", "chain", "config"}),
    "layer_refusals": ERRORS | {"layers", "chain", "config", "solvers"},
    "refusals": ERRORS | {"chain", "choices", "config", "layer_refusals", "layers", "solvers"},
    "deals": frozenset({"tiles"}),
    "choices": frozenset({"layers", "chain", "losses", "penalty", "solvers", "config"}),
    "plan": frozenset({"tiles", "streams", "layers", "chain", "losses", "penalty", "solvers", "config", "deals"})
    | {"build", "choices", "layer_refusals", "refusals"},
    "evaluation": frozenset({"layers", "objective", "state", "deals", "plan", "data", "team"}),
    "numerics": ERRORS | {"layers", "chain", "evaluation", "state"},
    "subproblems": frozenset({"layers", "chain", "losses", "objective", "regression", "state", "deals", "plan"})
    | {"points", "data"},
    "pieces": frozenset({"tiles", "layers", "regression", "sums", "team"}),
    "ring": frozenset({"tiles", "deals"}),
    "submodels": frozenset({"tiles", "streams", "layers", "regression", "solvers", "state", "deals", "plan", "ring"})
    | {"subproblems"},
    "parmac": frozenset({"tiles", "layers", "solvers", "state", "deals", "plan", "ring", "submodels", "subproblems"})
    | {"record", "team"},
    "fitting": frozenset(
        {"layers", "regression", "solvers", "state", "deals", "parmac", "pieces", "plan", "evaluation", "subproblems"}
    )
    | {"record", "team", "tiles"},
    "mac": frozenset(
        {
            "pieces",
            "streams",
            "layers",
            "losses",
            "regression",
            "state",
            "plan",
            "evaluation",
            "fitting",
            "points",
            "subproblems",
        }
        | {"data", "record", "team"}
    ),
    "selection": frozenset(
        {"layers", "regression", "state", "deals", "plan", "evaluation", "mac", "config", "data", "record"}
    )
    | {"team"},
    "curvature": frozenset({"layers", "tape", "losses", "symmetric"}),
    "symmetric": frozenset({"layers"}),
    "sums": frozenset({"tiles", "layers", "regression", "team"}),
    "points": frozenset({"tiles", "chain", "deals", "layers", "pieces", "regression", "sums", "team"}),
    "stochastic": frozenset(
        {"tiles", "streams", "layers", "choices", "state", "plan", "evaluation", "curvature", "running"}
    )
    | {"stochastic_start", "damping", "moves", "sums", "mac", "config", "data", "record", "team"},
    "running": frozenset({"tiles", "layers", "tape", "curvature", "pieces", "state", "plan", "sums", "config"})
    | {"record", "team"},
    "damping": frozenset(),
    "moves": frozenset({"layers", "pieces", "state", "team"}),
    "stochastic_start": frozenset({"chain", "data", "layers", "regression", "solvers", "sums", "team", "tiles"}),
    "alternating": frozenset({"layers", "state", "plan", "mac", "data", "record", "team"}),
    "baselines": frozenset({"tiles", "streams", "layers", "state", "plan", "curvature", "sums", "mac", "config"})
    | {"data", "record", "team"},
    "acceleration": frozenset({"layers", "objective", "plan", "evaluation", "state", "mac", "data", "record", "team"}),
    "levels": frozenset({"chain", "data", "layers", "regression"}),
    "starts": frozenset({"streams", "embedding", "layers", "penalty", "state", "plan", "mac", "config", "data"}),
    # the edge
    "tables": frozenset(),
    "config": ERRORS | {"tables"},
    "mpich": frozenset(),
    "packing": frozenset(),
    "console": frozenset(),
    "windows": frozenset({"console", "packing"}),
    "solo": ERRORS | {"console"},
    "team": ERRORS | {"console", "mpich", "packing", "solo", "windows"},
    "faults": ERRORS | {"console", "team", "train"},
    "record": ERRORS | {"console"},
    "kernels": frozenset({"console", "team"}),
    "lock": ERRORS | {"console"},
    "scheduler": ERRORS,
    "sources": ERRORS | {"config", "layers", "streams", "untrusted"},
    "own_file": ERRORS | {"config", "layers", "sources"},
    "split": frozenset({"config", "layers", "streams"}),
    "data": ERRORS | {"config", "layers", "own_file", "sources", "split"},
    "untrusted": ERRORS | {"layers"},
    "survey": ERRORS | {"checkpoint", "config", "data", "layers", "own_file", "sources", "split", "tiles", "untrusted"},
    "shards": ERRORS | {"config", "data", "deals", "layers", "own_file", "split", "survey", "team", "tiles"},
    "checkpoint": ERRORS | {"console", "state", "untrusted"},
    "sharded_state": ERRORS | {"checkpoint", "config", "deals", "rundir", "state", "team", "untrusted"},
    "rundir": ERRORS | {"checkpoint", "config", "console", "kernels", "lock", "state"},
    "model": ERRORS | {"chain", "checkpoint", "data", "layers", "own_file", "state", "untrusted"},
    "fetch": ERRORS | {"checkpoint", "console", "layers", "sources"},
    "predict": ERRORS | {"checkpoint", "console", "layers", "model", "sources"},
    "results": ERRORS | {"build", "config", "data", "layers", "levels", "model", "sources"},
    "figures": frozenset({"layers"}),
    "pictures": frozenset({"data", "figures", "layers", "results"}),
    "report": ERRORS | {"console", "pictures", "results"},
    "estimate": ERRORS | {"tiles", "choices", "config", "deals", "plan", "windows"},
    "scaling": frozenset({"tiles", "solvers", "deals", "pieces", "plan", "sums"}),
    "methods": frozenset({"state", "plan", "evaluation", "mac", "selection", "acceleration", "alternating"})
    | {"baselines", "stochastic", "config", "data", "record", "team"},
    "summary": frozenset({"data", "evaluation", "plan", "record", "state"}),
    "process": frozenset(),
    "train": ERRORS
    | {"process", "layers", "levels", "numerics", "penalty", "state", "plan", "evaluation", "methods", "starts"}
    | {"config", "console", "data", "model", "record", "rundir", "sharded_state", "summary", "team"},
    "findings": frozenset(),
    "machines": frozenset({"findings", "kernels", "mpich", "team"}),
    "storage": frozenset({"checkpoint", "findings", "lock", "untrusted"}),
    "doctor": ERRORS | {"console", "findings", "machines", "storage", "team"},
    "run": ERRORS
    | {"config", "console", "data", "estimate", "model", "plan", "process", "rundir", "starts", "team", "train"}
    | {"faults", "kernels", "record", "scheduler", "sharded_state", "shards", "survey"},
}
"""Room -> rooms that it may import, at the top of a file or inside a function.  A new room gets a row here."""

OWNERS = {
    "mpi4py": {"team"},
    "h5py": {"checkpoint", "sharded_state", "untrusted", "storage"},
    "pydantic": {"config"},
    "sklearn": {"sources"},
    "threadpoolctl": {"kernels"},
    "scipy": {"kernels", "symmetric", "selection", "alternating", "embedding", "solvers", "fetch"},
    "PIL": {"fetch"},
    "argparse": {"run", "predict", "fetch", "report", "doctor"},
    "time": {"record", "team", "rundir", "estimate", "faults", "lock", "scheduler", "doctor", "storage", "kernels"},
    "signal": {"run", "process", "faults"},
    "pickle": {"team"},
    "datetime": set(),
    "random": set(),
    "multiprocessing": set(),
    "threading": set(),
    "matplotlib": {"figures", "pictures"},
}
"""Library -> the only rooms that import it."""

SPEAKERS = {"record", "train", "run", "predict", "fetch", "report", "doctor"}
"""The modules that say something on standard output; the others only warn, on standard error."""

VERBS = {
    *("set_clock", "from_root", "all_or_raise", "share_memory", "array", "common", "fence", "share_array"),
    *("gather_rows", "gather_parts", "shift_to_next", "max_over_ranks", "barrier"),
}


def room(path: Path) -> str:
    """macmpi/solvers/w_sgd.py belongs to the room solvers."""
    first = path.relative_to(PACKAGE).parts[0]
    return "macmpi" if first == "__init__.py" else first.removesuffix(".py")


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def nodes() -> tuple[tuple[str, str, ast.AST], ...]:
    """Room, place in the text, node."""
    return tuple(
        (room(path), f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", node)
        for path, tree in trees().items()
        for node in ast.walk(tree)
    )


def modules(node: ast.AST) -> list[str]:
    """The dotted names that an import statement may load."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        names = [f"macmpi.{a.name}" if node.module == "macmpi" and a.name in MAY_IMPORT else "" for a in node.names]
        return [name or str(node.module) for name in names]
    return []


def rooms_imported(node: ast.AST) -> set[str]:
    inside = [name.split(".") for name in modules(node) if name.split(".")[0] == "macmpi"]
    return {parts[1] if len(parts) > 1 else "macmpi" for parts in inside}


def called(node: ast.AST) -> str:
    """The last name of what is called: f, a.f."""
    function = node.func if isinstance(node, ast.Call) else None
    return str(getattr(function, "id", getattr(function, "attr", "")))


# --- imports ----------------------------------------------------------------------------------------------------------


def test_every_room_is_in_the_table_and_on_the_page() -> None:
    rooms = {room(path) for path in trees()}
    assert rooms == MAY_IMPORT.keys()
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert [r for r in rooms - {"macmpi"} if f"`{r}`" not in page and f"`{r}/`" not in page] == []


def test_a_room_imports_only_what_the_table_allows() -> None:
    lazily = {"macmpi": {"model"}}  # macmpi.load, for those who only want to use a trained net
    wrong = [
        f"{place} imports {other}"
        for here, place, node in nodes()
        for other in rooms_imported(node) - {here} - MAY_IMPORT[here] - lazily.get(here, set())
    ]
    assert wrong == []


def test_the_table_goes_one_way() -> None:
    TopologicalSorter(MAY_IMPORT).prepare()  # raises CycleError
    line = ("layers", "tape", "chain", "objective", "solvers", "refusals", "plan", "evaluation", "mac", "starts")
    aside = (("tape", "losses"), ("losses", "objective"), ("losses", "regression"), ("regression", "solvers"))
    for lower, upper in (*pairwise((*line, "train", "run")), *aside):
        assert lower in MAY_IMPORT[upper]
    for lower in MATHEMATICS:
        assert MAY_IMPORT[lower].isdisjoint({"run", "train", "rundir", "checkpoint", "model", "estimate"})


def test_the_package_itself_imports_nothing() -> None:
    """So that rank 0 can refuse a config before NumPy is loaded: __init__, run, team, config and theirs are light."""
    teams = ("solo", "team", "mpich", "packing", "windows", "console", "record", "lock")
    for name in ("__init__", "run", *teams, "config", "tables"):
        tree = trees()[PACKAGE / f"{name}.py"]
        top = {m.split(".")[0] for node in tree.body for m in modules(node)}
        assert top.isdisjoint({"numpy", "scipy", "h5py", "mpi4py", "pydantic"}), name
    body = trees()[PACKAGE / "__init__.py"].body
    assert {m for node in body for m in modules(node)} <= {"__future__", "typing"}


@pytest.mark.parametrize("library", OWNERS)
def test_a_library_has_its_rooms(library: str) -> None:
    users = {here for here, _, node in nodes() if any(m.split(".")[0] == library for m in modules(node))}
    assert users <= OWNERS[library]


# --- what is said and done where --------------------------------------------------------------------------------------


def test_who_prints() -> None:
    """All output goes through `console`, which no full disk and no closed pipe can end."""
    wrong = []
    for here, place, node in nodes():
        to_errors = isinstance(node, ast.Call) and any(k.arg == "error" for k in node.keywords)
        if called(node) == "print" and here != "console":
            wrong.append(place)
        if called(node) == "say" and here not in SPEAKERS | {"console"} and not to_errors:
            wrong.append(place)
    assert wrong == []


def test_the_world_is_asked_for_in_one_place() -> None:
    def names(node: ast.AST) -> bool:
        return (isinstance(node, ast.Name) and node.id == "COMM_WORLD") or (
            isinstance(node, ast.Attribute) and node.attr == "COMM_WORLD"
        )

    assert {here for here, _, node in nodes() if names(node)} == {"team"}
    assert {here for here, _, node in nodes() if called(node) == "launch"} == {"run", "doctor"}


def test_one_room_names_the_bindings_of_mpi() -> None:
    assert {here for here, _, node in nodes() if isinstance(node, ast.Constant) and node.value == "mpi4py"} == {"team"}


def test_one_module_opens_hdf5_files_for_reading() -> None:
    """Without a lock, which a file system may not have; the doctor tries HDF5's own lock too."""
    opening = [(here, node) for here, _, node in nodes() if ast.unparse(getattr(node, "func", node)) == "h5py.File"]
    reading = {
        here
        for here, node in opening
        if isinstance(node, ast.Call) and "w" not in [a.value for a in node.args if isinstance(a, ast.Constant)]
    }
    assert reading == {"untrusted", "storage"}


def test_nobody_asks_what_kind_a_layer_or_a_solver_is() -> None:
    asking = {"isinstance", "issubclass", "hasattr", "getattr", "type"}
    assert [place for here, place, node in nodes() if here in MATHEMATICS and called(node) in asking] == []


def test_the_mathematics_knows_no_files_and_no_environment() -> None:
    outside = {"os", "sys", "io", "pathlib", "subprocess", "tempfile", "shutil", "logging"}
    wrong = [
        place
        for here, place, node in nodes()
        if here in MATHEMATICS and ({m.split(".")[0] for m in modules(node)} & outside or called(node) == "open")
    ]
    assert wrong == []


def test_random_numbers_come_from_named_streams() -> None:
    wrong = [
        place
        for here, place, node in nodes()
        if here != "streams" and isinstance(node, ast.Attribute) and ast.unparse(node) == "np.random"
    ]
    assert wrong == []


# --- collectives ------------------------------------------------------------------------------------------------------


def conditional(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Each node below with the reason why it may not run on every rank, or ""."""
    for child in ast.iter_child_nodes(tree):
        reason = inside
        if isinstance(tree, (ast.If, ast.IfExp)) and child is not tree.test and ".rank" in ast.unparse(tree.test):
            reason = "if rank"
        elif isinstance(tree, ast.Try):
            reason = "try"
        elif isinstance(tree, (ast.GeneratorExp, ast.Lambda)):
            reason = type(tree).__name__
        yield reason, child
        yield from conditional(child, reason)


@pytest.mark.parametrize(
    "name",
    (
        *(
            "mac",
            "fitting",
            "parmac",
            "evaluation",
            "starts",
            "train",
            "data",
            "selection",
            "alternating",
            "acceleration",
        ),
        *("running", "stochastic"),
        *("baselines/__init__", "baselines/minibatch", "baselines/full_batch"),
    ),
)
def test_a_collective_is_never_where_a_rank_may_miss_it(name: str) -> None:
    wrong = []
    for reason, node in conditional(trees()[PACKAGE / f"{name}.py"]):
        owner = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if reason and called(node) in VERBS and "team" in owner:
            wrong.append(f"{name}.py:{node.lineno} {reason}")
    assert wrong == []


def public_docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Name and docstring of every public class, function and method; a method without one has its base's."""
    tree = trees()[path]
    known = [node for body in (trees()[PACKAGE / "solo.py"].body, tree.body) for node in body]
    classes = {node.name: node for node in known if isinstance(node, ast.ClassDef)}

    def document(owner: ast.ClassDef, name: str) -> str:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and node.name == name and ast.get_docstring(node):
                return ast.get_docstring(node) or ""
        bases = [classes[ast.unparse(b)] for b in owner.bases if ast.unparse(b) in classes]
        return next((found for base in bases if (found := document(base, name))), "")

    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, ast.get_docstring(node) or ""
    for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        methods = [n.name for n in owner.body if isinstance(n, ast.FunctionDef)]
        if methods:
            yield owner.name, ast.get_docstring(owner) or ""
        for name in methods:
            if not name.startswith("_"):
                yield f"{owner.name}.{name}", document(owner, name)


@pytest.mark.parametrize(
    "name",
    [
        "solo",
        "team",
        "mac",
        "fitting",
        "parmac",
        "alternating",
        "running",
        "stochastic",
        "acceleration",
        "baselines/minibatch",
        "baselines/full_batch",
    ],
)
def test_docstrings_say_who_has_to_call(name: str) -> None:
    wrong = [what for what, text in public_docstrings(PACKAGE / f"{name}.py") if "Collective:" not in text]
    assert wrong == []


# --- configs, and what the README promises ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "run").glob("*.toml")), ids=lambda path: path.name)
def test_every_config_of_the_repository_is_valid(path: Path) -> None:
    config.read(path, [])


def test_the_documented_defaults_are_the_defaults() -> None:
    """run/defaults.toml names every key, in the order of the code, with its default."""
    documented = tomllib.loads((ROOT / "run" / "defaults.toml").read_text())
    defaults = asdict(config.Config())
    assert documented == defaults
    assert [(t, list(keys)) for t, keys in documented.items()] == [(t, list(k)) for t, k in defaults.items()]
    kinds = [{k: type(v) for k, v in keys.items()} for keys in documented.values()]
    assert kinds == [{k: type(v) for k, v in keys.items()} for keys in defaults.values()]


def test_every_default_is_explained() -> None:
    text = (ROOT / "run" / "defaults.toml").read_text()
    assert len(re.findall(r"^\w+ = ", text, re.MULTILINE)) == sum(len(t) for t in asdict(config.Config()).values())


def test_the_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    readme = (ROOT / "README.md").read_text()
    promised = set(re.findall(r"(?:^|`)make ([a-z]+)", readme, re.MULTILINE))
    assert {"run", "test"} <= promised <= targets
    for module in set(re.findall(r"python -m macmpi\.(\w+)", readme)):
        assert (PACKAGE / f"{module}.py").exists(), module
    for path in set(re.findall(r"\b((?:run|docs|data)/[\w./-]+\.(?:toml|md)|[A-Z]+\.md)\b", readme)):
        assert (ROOT / path).exists(), path


def test_the_targets_of_the_makefile_run_this_program() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for path in re.findall(r"run/\w+\.toml", makefile):
        assert (ROOT / path).exists()
    assert "-m macmpi.run" in makefile
    assert "-m pytest" in makefile


def test_test_files_of_one_name_are_collected_together() -> None:
    """Plain `pytest` collects every folder at once, and several folders have files of one name."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    names = Counter(path.name for path in files)
    shared = [str(path) for path in files if names[path.name] > 1]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *shared]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout
