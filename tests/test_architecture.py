"""The code keeps to docs/architecture.md: who imports whom, who prints, who asks for the time, who knows MPI.

Levels and circles are import-linter's, in setup.cfg: `make lint`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

from macmpi import config

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "macmpi"

PACKAGES: dict[str, set[str]] = {
    "macmpi": set(),
    "typing": set(),
    "console": {"macmpi"},
    "state": {"typing"},
    "reductions": {"typing"},
    "files": {"macmpi", "typing"},
    "config": {"macmpi"},
    "parallel": {"macmpi", "console", "reductions", "typing"},
    "nets": {"macmpi", "config", "reductions", "typing"},
    "data": {"macmpi", "config", "files", "nets", "parallel", "reductions", "typing"},
    "solvers": {"demand", "nets", "parallel", "reductions", "typing"},
    "plan": {"demand", "macmpi", "config", "nets", "parallel", "solvers", "state", "typing"},
    "demand": set(),
    "half_steps": {"macmpi", "data", "nets", "parallel", "plan", "reductions", "solvers", "state", "typing"},
    "mac": {"half_steps", "nets", "parallel", "state"},
    "methods": {"config", "data", "half_steps", "mac", "nets", "parallel", "plan", "reductions", "solvers"}
    | {"state", "typing"},
    "results": {"macmpi", "config", "console", "data", "files", "nets", "reductions", "state", "typing"},
    "training": {
        "macmpi",
        "config",
        "console",
        "data",
        "files",
        "half_steps",
        "methods",
        "nets",
        "parallel",
        "plan",
    }
    | {"results", "state", "typing"},
    "run": {"macmpi", "config", "console", "data", "methods", "parallel", "plan", "results", "training"},
    "api": {
        "macmpi",
        "config",
        "console",
        "data",
        "files",
        "nets",
        "parallel",
        "results",
        "training",
        "typing",
    },
    "sklearn": {"macmpi", "api", "data", "parallel", "results", "typing"},
    "predict": {"macmpi", "console", "data", "files", "parallel", "results", "typing"},
    "report": {"macmpi", "config", "console", "files", "parallel", "results"},
    "export": {"macmpi", "console", "data", "files", "nets", "parallel", "results", "typing"},
    "show": {"macmpi", "console", "files", "parallel", "results"},
    "fetch": {"macmpi", "console", "data", "files", "parallel", "typing"},
    "doctor": {"macmpi", "console", "files", "parallel", "training"},
    "init": {"macmpi", "config", "console", "data", "files", "parallel", "plan"},
    "__main__": {"macmpi", "console", "parallel"},
}
"""Package or module at the top level -> those that it may import, at the top of a file or inside a function."""

COMMANDS = {"run", "predict", "report", "show", "export", "init", "fetch", "doctor", "__main__"}
"""Each is `python -m macmpi.NAME`: a module at the top level; __main__ lists the others."""

MATHEMATICS = (
    *("typing", "reductions", "state", "mac", "nets.", "solvers.", "half_steps.", "methods."),
    *("plan.plan", "plan.work_lists", "plan.resolved", "plan.structure"),
)
"""Modules, or packages with a dot behind them, that know no MPI, no files and no clocks."""

LONGEST = 400
"""Lines of a module: beyond them a second idea usually lives inside."""

OWNERS = {
    "mpi4py": {"parallel.mpi"},
    "h5py": {"files", "training.checkpoint", "doctor"},
    "sklearn": {"data.named_sets", "fetch", "sklearn", "solvers.fitters."},
    "IPython": {"api.heard"},
    "pydantic": {"config.reading", "results.card", "data.frames"},
    "threadpoolctl": {"parallel.kernels"},
    "scipy": {"fetch", "data.wide", "parallel.lapack", "solvers.", "methods."},
    "PIL": {"data.images"},
    "narwhals": {"data.series"},
    "pandas": {"fetch"},
    "pyarrow": {"data.tables"},
    "polars": set(),
    "argparse": {"parallel.command"},
    "time": {"parallel.clock", "parallel.mpi", "plan.estimate", "training.record", "doctor", "api.cleaner"}
    | {"training.process", "training.time_limit", "training.lock"},
    "signal": {"api.cleaner", "api.on_ranks", "training.process"},
    "pickle": {"parallel.mpi"},
    "datetime": {"data.series", "data.texts"},
    "random": set(),
    "multiprocessing": set(),
    "threading": {"parallel.kernels", "training.process"},
    "matplotlib": {"results.figures", "results.pictures"},
    "onnx": {"export"},
    "onnxruntime": {"export"},
}
"""Library -> the only modules, or packages with a dot behind them, that import it."""

SPEAKERS = {"training.record", "training.loop", "api.on_ranks", "parallel.command", "run", "doctor", "__main__"}
"""The modules that say something on standard output; the others only warn, on standard error."""

VERBS = {
    *(
        "set_deadline",
        "from_root",
        "on_root",
        "all_or_raise",
        "share_memory",
        "array",
        "common",
        "fence",
        "share_array",
    ),
    *("gather_rows", "gather_parts", "gather_columns", "shift_to_next", "max_over_ranks", "barrier", "depart"),
}


def module(path: Path) -> str:
    """macmpi/solvers/descent.py is the module solvers.descent, macmpi/solvers/__init__.py solvers.__init__."""
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return "macmpi" if name == "__init__" else name


def within(here: str, places: Iterable[str]) -> bool:
    """Whether a module is one of some modules, or in one of some packages, which end with a dot."""
    return any(here == place or (place.endswith(".") and here.startswith(place)) for place in places)


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def nodes() -> tuple[tuple[str, str, ast.AST], ...]:
    """Module, place in the text, node."""
    return tuple(
        (here, f"{place}:{getattr(node, 'lineno', 0)}", node)
        for path, tree in trees().items()
        for here, place in [(module(path), path.relative_to(ROOT))]
        for node in ast.walk(tree)
    )


@cache
def imports() -> tuple[tuple[str, str, ast.Import | ast.ImportFrom], ...]:
    """The nodes that are import statements."""
    return tuple((here, place, node) for here, place, node in nodes() if isinstance(node, (ast.Import, ast.ImportFrom)))


def modules(node: ast.AST) -> list[str]:
    """The dotted names that an import statement may load."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        names = [f"macmpi.{a.name}" if node.module == "macmpi" and a.name in PACKAGES else "" for a in node.names]
        return [name or str(node.module) for name in names]
    return []


def packages_imported(node: ast.AST) -> set[str]:
    inside = [name.split(".") for name in modules(node) if name.split(".")[0] == "macmpi"]
    return {parts[1] if len(parts) > 1 else "macmpi" for parts in inside}


def called(node: ast.AST) -> str:
    """The last name of what is called: f, a.f."""
    function = node.func if isinstance(node, ast.Call) else None
    return str(getattr(function, "id", getattr(function, "attr", "")))


# --- imports ----------------------------------------------------------------------------------------------------------


def test_every_package_is_in_the_table_and_on_the_page() -> None:
    packages = {module(path).split(".")[0] for path in trees()}
    assert packages == PACKAGES.keys()
    assert len(packages - COMMANDS - {"sklearn"}) <= 21, "what users do not call belongs to a package"
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert [p for p in packages - {"macmpi"} if f"`{p}`" not in page and f"`{p}/`" not in page] == []


def test_a_package_imports_only_what_the_table_allows() -> None:
    lazily = {"macmpi": {"api", "console", "results"}}  # macmpi.fit, macmpi.load; a warning
    wrong = [
        f"{place} imports {other}"
        for here, place, node in imports()
        for package in [here.split(".")[0]]
        for other in packages_imported(node) - {package} - PACKAGES[package] - lazily.get(package, set())
    ]
    assert wrong == []


def test_no_module_is_long() -> None:
    lengths = {module(path): len(path.read_text(encoding="utf-8").splitlines()) for path in trees()}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Name and length of each function: the lines of its body, from the first to the last, without the docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            yield node.name, (node.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_function_of_stochastic_mac_is_long() -> None:
    """A step, and each of what it consists of, is read at once."""
    own = {path: tree for path, tree in trees().items() if module(path).startswith("methods.stochastic.")}
    assert len(own) > 5
    assert [(path.name, *found) for path, tree in own.items() for found in functions(tree) if found[1] > 30] == []


def test_numbers_of_stochastic_mac_that_were_tuned_stand_in_one_table() -> None:
    """plan/tuned.py; where they are used stand formulas, names, and what only shares work or memory."""
    others = {"FACTS", "GRAM", "LEFT", "METRIC", "PIECE", "ROWS", "RUNS"}
    named = {
        target.id
        for path, tree in trees().items()
        if module(path).startswith("methods.stochastic.")
        for node in tree.body
        if isinstance(node, ast.Assign)
        for each in node.targets
        for target in ast.walk(each)
        if isinstance(target, ast.Name) and target.id.isupper()
    }
    assert named == others


def test_the_package_itself_imports_nothing() -> None:
    """So that rank 0 can refuse a config before NumPy is loaded: __init__, run, team, config and theirs are light."""
    ranks = ("team", "mpi", "exchange", "clock", "launchers", "__init__")
    light = (
        "__init__",
        "__main__",
        "run",
        "console",
        "data/__init__",
        *(f"parallel/{name}" for name in ranks),
    )
    for name in (
        *light,
        "config/__init__",
        "config/reading",
        "config/model",
        "config/tables",
        "training/__init__",
        "training/lock",
    ):
        tree = trees()[PACKAGE / f"{name}.py"]
        top = {m.split(".")[0] for node in tree.body for m in modules(node)}
        assert top.isdisjoint({"numpy", "scipy", "h5py", "mpi4py", "pydantic"}), name
    body = trees()[PACKAGE / "__init__.py"].body
    assert {m for node in body for m in modules(node)} <= {"__future__", "typing"}


def test_modules_that_texts_import_exist() -> None:
    """Code inside of strings, which no checker reads, and examples on pages."""
    texts = [p for folder in ("macmpi", "tests", "run", "docs") for p in (ROOT / folder).rglob("*.*")]
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*texts, *ROOT.glob("*.md")]
        if path.suffix in (".py", ".md", ".sh") and path.name != "CHANGELOG.md"
        for name in re.findall(r"\b(?:from|import) (macmpi(?:\.\w+)+)", path.read_text(encoding="utf-8"))
        for place in [ROOT.joinpath(*name.split("."))]
        if not place.with_suffix(".py").exists() and not (place / "__init__.py").exists()
    ]
    assert wrong == []


@pytest.mark.parametrize("library", OWNERS)
def test_a_library_has_its_modules(library: str) -> None:
    users = {here for here, _, node in imports() if any(m.split(".")[0] == library for m in modules(node))}
    assert [here for here in users if not within(here, OWNERS[library])] == []


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

    assert {here for here, _, node in nodes() if names(node)} == {"parallel.mpi"}
    assert {here for here, _, node in nodes() if called(node) == "launch"} == {"run", "doctor", "parallel.mpi"}


def test_one_module_names_the_bindings_of_mpi() -> None:
    naming = {here for here, _, node in nodes() if isinstance(node, ast.Constant) and node.value == "mpi4py"}
    assert naming == {"parallel.mpi"}


def test_one_module_opens_hdf5_files_for_reading() -> None:
    """Without a lock, which a file system may not have; the doctor tries HDF5's own lock too."""
    reading = {
        here
        for here, _, node in nodes()
        if isinstance(node, ast.Call) and called(node) == "File" and ast.unparse(node.func) == "h5py.File"
        if "w" not in [a.value for a in node.args if isinstance(a, ast.Constant)]
    }
    assert reading == {"files", "doctor"}


def test_nobody_asks_what_kind_a_layer_or_a_solver_is() -> None:
    """By a function, or by `case Class()`: it is the tasks of a work list alone that are told apart."""
    asking = {"isinstance", "issubclass", "hasattr", "getattr", "type"}
    tasks = {node.name for here, _, node in nodes() if here == "plan.work_lists" and isinstance(node, ast.ClassDef)}
    wrong = [
        place
        for here, place, node in nodes()
        if within(here, MATHEMATICS)
        if called(node) in asking or (isinstance(node, ast.MatchClass) and ast.unparse(node.cls) not in tasks)
    ]
    assert wrong == []


def test_a_kind_of_map_is_known_to_files_of_layers_alone() -> None:
    """So a new kind is its own file, and the word or the table of config/model.py that names the file.

    Skips are made of kinds of their own; whoever reads a net's activations knows that kind.
    """
    kinds = {
        node.name
        for here, _, node in nodes()
        if here.startswith("nets.layers.") and isinstance(node, ast.ClassDef)
        if any(isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "kind" and n.value for n in node.body)
    }
    assert len(kinds) > 20
    known = {
        (here, alias.name)
        for here, _, node in imports()
        if isinstance(node, ast.ImportFrom) and not here.startswith("nets.layers.")
        for alias in node.names
        if str(node.module).startswith("macmpi.nets.layers") and alias.name in kinds
    }
    assert known == {*(("nets.build", name) for name in ("Add", "Copy", "Stack")), ("api.given", "Activation")}


def test_nobody_asks_a_path_what_it_is() -> None:
    """Path.exists and its like raise for a folder that one may not enter and for a name too long; those of os.path say
    no."""
    asking = {"exists", "is_file", "is_dir", "is_symlink", "is_mount"}
    asked = [
        place
        for _, place, node in nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in asking
        if ast.unparse(node.func.value) != "os.path"
    ]
    assert asked == []


def test_the_mathematics_opens_no_files() -> None:
    """setup.cfg forbids it what could open them otherwise: `make lint`."""
    assert [place for here, place, node in nodes() if within(here, MATHEMATICS) and called(node) == "open"] == []


def test_random_numbers_come_from_named_streams() -> None:
    wrong = [
        place
        for here, place, node in nodes()
        if here != "parallel.streams" and isinstance(node, ast.Attribute) and ast.unparse(node) == "np.random"
    ]
    assert wrong == []


# --- collectives ------------------------------------------------------------------------------------------------------


def document(node: ast.AST) -> str:
    known = isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
    return (ast.get_docstring(node) or "") if known else ""  # type: ignore[arg-type]


@cache
def collectives() -> frozenset[str]:
    """The verbs of a team, and names of functions all of which say that ranks call them together.

    Left out are names that arrays and regular expressions have too.
    """
    says: dict[str, set[bool]] = {}
    for _, _, node in nodes():
        if isinstance(node, ast.FunctionDef):
            says.setdefault(node.name, set()).add("Collective: yes" in document(node))
    others = {*dir(np), *dir(np.ndarray), *dir(re), "set_deadline", "common"}
    return frozenset({name for name, said in says.items() if said == {True}} | VERBS) - others


def goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a rank may go on behind an exception that others have not met.

    It does not where the handler raises or ends the process, or first asks whether all ranks agree on the error.
    """
    first, last = handler.body[0], handler.body[-1]
    ends = isinstance(last, ast.Raise) or (isinstance(last, ast.Expr) and called(last.value) == "exit")
    return not ends and not (isinstance(first, ast.If) and ".agreed" in ast.unparse(first.test))


def conditional(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Each node below with the reason why it may not run on every rank, or ""."""
    for child in ast.iter_child_nodes(tree):
        reason = inside
        if isinstance(tree, (ast.If, ast.IfExp)) and child is not tree.test and ".rank" in ast.unparse(tree.test):
            reason = "if rank"
        elif isinstance(tree, ast.Try) and (child not in tree.body or any(map(goes_on, tree.handlers))):
            reason = "try"
        elif isinstance(tree, ast.GeneratorExp):
            reason = "generator"
        elif isinstance(tree, ast.FunctionDef):
            yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(tree))
            manages = "contextmanager" in map(ast.unparse, tree.decorator_list)
            reason = "generator" if yields and not manages else ""
        elif called(tree) in ("from_root", "all_or_raise", "on_root") and child is not tree.func:  # type: ignore[attr-defined]
            reason = f"within {called(tree)}"
        yield reason, child
        yield from conditional(child, reason)


def test_a_collective_is_never_where_a_rank_may_miss_it() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} {reason}: {called(node)}"
        for path, tree in trees().items()
        for reason, node in conditional(tree)
        if reason and isinstance(node, ast.Call) and called(node) in collectives()
    ]
    assert wrong == []


def of_its_own(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions inside it."""
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.FunctionDef):
            yield child
            yield from of_its_own(child)


def test_a_function_that_calls_a_collective_says_so() -> None:
    """Or its class says so of all; verbs of a team say it once, in the class that has them for one process."""
    wrong = []
    for path, tree in trees().items():
        owners = {id(f): c for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for f in c.body}
        top = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and (f in tree.body or id(f) in owners)]
        for function in top:
            says = document(function) + document(owners.get(id(function), ast.Pass()))
            calls = {called(node) for node in of_its_own(function)} & collectives()
            if calls and "Collective: " not in says and function.name != "main":
                wrong.append(f"{path.relative_to(ROOT)}:{function.lineno} {function.name} calls {', '.join(calls)}")
    assert wrong == []


def public_docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Name and docstring of every public class, function and method; a method without one has its base's."""
    tree = trees()[path]
    known = [node for body in (trees()[PACKAGE / "parallel" / "team.py"].body, tree.body) for node in body]
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
        "parallel/team",
        "parallel/mpi",
        "mac",
        "half_steps/w_step",
        "half_steps/context",
        "half_steps/method",
        "half_steps/errors",
        "half_steps/ring",
        "methods/alternating",
        "methods/stochastic/curvature",
        "methods/stochastic/method",
        "methods/stochastic/passes",
        "methods/accelerated",
        "methods/backprop",
    ],
)
def test_docstrings_say_who_has_to_call(name: str) -> None:
    wrong = [what for what, text in public_docstrings(PACKAGE / f"{name}.py") if "Collective:" not in text]
    assert wrong == []


def documented(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring of a module, a class, a function or a constant."""
    for statement in body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield statement.lineno, value.value
        for inner in ("body", "orelse"):
            yield from documented(getattr(statement, inner, []))


def test_a_docstring_begins_with_a_sentence() -> None:
    """Who reads it where it is used, in a list or in a tooltip, does not see the name that it would lean on.

    It says what the function does, "Gives", and asks nobody to do it.
    """
    fragments = r"(It|Its|Of|The same|Their|They|What|Where|Whether|Which|Whose|How|Those|As)\b"
    fragments += r"|(Call|Copy|Cut|Do|Draw|End|Give|Hold|Join|Let|Make|Move|Print|Refuse|Return|Send|Wait|Write)\b"
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, tree in trees().items()
        for line, text in documented(tree.body)
        if re.match(fragments, text)
    ]
    assert wrong == []


def test_a_function_says_what_it_does() -> None:
    """Of truth values "Tells whether", of nothing what it changes: a verb comes first, or the formula of a change.

    Of other values it says "Returns the ..." or gives their formula; only a property, whose name is a noun,
    may begin with "The".
    """
    verb, no_article = r"\w+s\b|[^\n]*(<-|\+=)", r"(?!(A|All|An|Any|Both|Each|Every|No|Some|The|This)\b)"
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.returns and (text := ast.get_docstring(node))
        if (without_value := ast.unparse(node.returns) in ("bool", "None"))
        or not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        if not re.match(verb if without_value else no_article, text)
    ]
    assert wrong == []


def test_names_and_texts_keep_to_the_words_of_the_field() -> None:
    """Work is assigned and memory is free: a reader need not learn words that only this program uses."""
    private = re.compile(r"(?:\b|_)(rooms?|deals?|dealt|dealing|beside|manieth|anew|so many)(?:\b|_)", re.IGNORECASE)
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in trees()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if private.search(line)
    ]
    assert wrong == []


def test_few_files_name_where_rows_of_points_live() -> None:
    """Others ask a placement what follows from it.  In code, texts and docstrings; names of settings apart, no synonym.

    Properties of a placement that come near to naming one are asked by the plan and by who keeps files, where work is
    divided and memory is counted.
    """
    naming = re.compile(r"sharded|per_node")
    assert files_with(naming) <= {
        *("parallel.placement", "config.tables"),
        *("data.loading", "data.gathered", "data.checks"),
    }
    assert files_with(re.compile(r"\.all_rows\b")) <= {
        *("parallel.placement", "parallel.points", "plan.plan", "plan.cost", "plan.estimate", "plan.resolve"),
        *("training.trial", "training.run_directory", "training.checkpoint"),
    }
    assert files_with(re.compile(r"\.one_copy\b")) <= {"parallel.placement", "plan.estimate", "plan.cost"}
    assert files_with(re.compile(r"\.subset is\b")) <= {"parallel.points", "half_steps.context"}


def test_few_files_know_that_outputs_have_weights() -> None:
    """Those that read and score them, ask for them or declare them, and the loss; `Sizes.weights` is of points."""
    knowing = re.compile(r"\[Y, V\]|WEIGHTED_OUTPUTS|WeightedOutputs|for_weights|weights_in\b|data\.outputs")
    assert files_with(knowing) <= {
        *("data.dataset", "data.loading", "data.reader", "nets.losses.__init__", "nets.losses.weighted"),
        *("demand", "plan.demands", "results.scores", "solvers.__init__"),
    }


def test_few_files_name_layers_of_bits_or_words() -> None:
    """Others ask a map for its code (`Code` in nets/layers): what it can be, what searches it, how many bits it has."""
    assert files_with(re.compile(r'"(binary|argmax)"|\b(OneHot|Binary)\b')) <= {
        *("config.model", "config.tables", "nets.layers.__init__", "nets.layers.codes"),
        *("plan.demands", "results.model", "api.fit"),
    }
    assert files_with(re.compile(r"\.alphabet\b")) <= {"nets.layers.__init__", "nets.layers.codes", "solvers.z_binary"}


def files_with(words: re.Pattern[str]) -> set[str]:
    """The modules whose text has such words."""
    return {module(path) for path in trees() if words.search(path.read_text(encoding="utf-8"))}


# --- configs, and what the README promises ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "run").glob("*.toml")), ids=lambda path: path.name)
def test_every_config_of_the_repository_is_valid(path: Path) -> None:
    config.read(path, [])


def test_the_documented_defaults_are_the_defaults() -> None:
    """run/defaults.toml names every key, in the order of the code, with its default."""
    documented = tomllib.loads((ROOT / "run" / "defaults.toml").read_text(encoding="utf-8"))
    defaults = asdict(config.Config())
    assert documented == defaults
    assert [(t, list(keys)) for t, keys in documented.items()] == [(t, list(k)) for t, k in defaults.items()]
    kinds = [{k: type(v) for k, v in keys.items()} for keys in documented.values()]
    assert kinds == [{k: type(v) for k, v in keys.items()} for keys in defaults.values()]


def test_every_default_is_explained() -> None:
    text = (ROOT / "run" / "defaults.toml").read_text(encoding="utf-8")
    assert len(re.findall(r"^\w+ = ", text, re.MULTILINE)) == sum(len(t) for t in asdict(config.Config()).values())


def test_the_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    promised = set(re.findall(r"(?:^|`)make ([a-z]+)", readme, re.MULTILINE))
    assert {"run", "test"} <= promised <= targets
    for module in set(re.findall(r"python -m macmpi\.(\w+)", readme)):
        assert (PACKAGE / f"{module}.py").exists(), module
    for path in set(re.findall(r"\b((?:run|docs|data)/[\w./-]+\.(?:toml|md)|[A-Z]+\.md)\b", readme)):
        assert (ROOT / path).exists(), path


def test_the_targets_of_the_makefile_run_this_program() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
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


# --- the picture of the packages --------------------------------------------------------------------------------------


def drawn() -> str:
    """The import table as a Mermaid graph, without the arrows that longer ways imply."""
    reached: dict[str, set[str]] = {}
    lines = ["graph BT"]
    for package in TopologicalSorter(PACKAGES).static_order():
        below = PACKAGES[package]
        implied = {far for near in below for far in reached[near]}
        reached[package] = below | implied
        if below - implied:
            lines.append(f"    {' & '.join(sorted(below - implied))} --> {package}")
    return "\n".join(lines)


def test_the_picture_is_that_of_the_table() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"```mermaid\n(.*?)\n```", page, re.DOTALL)
    assert sorted(picture.splitlines()) == sorted(drawn().splitlines())


if __name__ == "__main__":
    print(drawn())
