"""The pages are readable and true: width, length, paths and names that exist, results apart from history."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from ast import literal_eval
from functools import cache
from pathlib import Path

import constants_page
import cost_page
import gallery
import paper_page
import places_page
import pytest
import refusals_page
import results_page
from pages_of_evidence import LARGEST

from macmpi.config.whole import USUAL, flat
from macmpi.half_steps.method import RANGE
from macmpi.plan import tuned
from macmpi.solvers import W_SOLVERS

ROOT = Path(__file__).resolve().parents[2]
WIDTH, README_LINES, WORDS, FILES = 120, 120, 40_000, 45

PAGES = sorted(path for pattern in ("*.md", "data/*.md", "docs/**/*.md", "log/*.md") for path in ROOT.glob(pattern))
PRESENT = [path for path in PAGES if path.parent.name != "log" and path.name != "CHANGELOG.md"]
"""The pages that describe the program as it is."""

FOLDERS = [
    ROOT,
    *(p for p in (ROOT / "macmpi").rglob("*") if p.is_dir()),
    ROOT / "macmpi",
    ROOT / "tests",
    ROOT / "run",
]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(text: str) -> list[str]:
    """The lines of a page outside code and tables."""
    outside = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [line for line in outside.splitlines() if not line.startswith("|")]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_line_of_prose_is_long(page: Path) -> None:
    assert [line for line in prose(page.read_text(encoding="utf-8")) if len(line) > WIDTH] == []


def test_the_pages_are_few_and_keep_to_their_words() -> None:
    """As `wc -w` counts them: a page that says more has another say less."""
    pages = list((ROOT / "docs").rglob("*.md"))
    assert len(pages) <= FILES
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= WORDS


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= README_LINES
    assert [line for line in lines if len(line) > WIDTH] == []


LONG = {"docs/paper.md", "docs/results.md"}
"""Made of measurements, a section for each."""


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent != ROOT], ids=named)
def test_pages_are_short(page: Path) -> None:
    assert named(page) in LONG or len(page.read_text(encoding="utf-8").splitlines()) <= 200


def test_the_page_of_keys_leads_from_every_table_to_more_and_shows_all_keys() -> None:
    """Of run/defaults.toml."""
    page = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    tables = tomllib.loads((ROOT / "run" / "defaults.toml").read_text(encoding="utf-8"))
    assert re.findall(r"^\| `\[(\w+)\]` \| .+ \| \[", page, re.MULTILINE) == list(tables)
    assert '\n--8<-- "run/defaults.toml"\n' in page


def test_the_page_of_refusals_has_the_messages_of_macmpi() -> None:
    """`make docs` writes it."""
    assert refusals_page.PAGE.read_text(encoding="utf-8") == refusals_page.page()


def test_the_page_of_places_has_what_goes_with_what() -> None:
    """`make docs` writes it.  What is refused is so wherever the points live."""
    text = places_page.PAGE.read_text(encoding="utf-8")
    assert text == places_page.page(text)
    cells = [cell for row in places_page.cells({}) for cell in row[1:]]
    assert all(re.fullmatch(r"yes|no \(\d+\)", cell) for cell in cells)
    assert cells.count("yes") > len(cells) / 2


def test_the_page_of_constants_has_all_tuned_numbers_with_what_they_were_chosen_on() -> None:
    """`make docs` writes it."""
    values = {name: value for name, value in vars(tuned).items() if name.isupper()}
    found = constants_page.constants(constants_page.SOURCE.read_text(encoding="utf-8"))
    texts = {each.name: each.value for each in found if isinstance(each, constants_page.Constant)}
    assert {name: literal_eval(re.sub(r"frozenset\((.*)\)", r"\1", text)) for name, text in texts.items()} == values
    assert constants_page.PAGE.read_text(encoding="utf-8") == constants_page.page()


def test_a_tuned_number_without_its_origin_is_no_constant() -> None:
    with pytest.raises(ValueError, match="STRIDE: what it is"):
        list(constants_page.constants("head\n\n# A share.\n# Half, double: not recorded.\nSTRIDE = 0.7\n"))


def test_the_page_of_costs_is_that_of_its_files() -> None:
    """`make docs` writes it; each row says whether it was measured."""
    text = cost_page.PAGE.read_text(encoding="utf-8")
    assert text == cost_page.page()
    kinds = re.findall(r"^\| (?:full|stochastic) MAC .*\| (\w+) \|$", text, re.MULTILINE)
    assert set(kinds) == {"measured", "predicted"}
    assert kinds.count("predicted") == len(cost_page.ASKED)


RECORDING = {"record_of", "_record", "notes"}
"""Functions that make a record of the curve; its keys are those of the dictionaries that they write down."""


def test_every_key_of_a_curve_stands_on_its_page() -> None:
    keys = {
        key.value
        for folder in ("training", "methods")
        for path in (ROOT / "macmpi" / folder).rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef) and function.name in RECORDING
        for node in ast.walk(function)
        for key in (node.keys if isinstance(node, ast.Dict) else [getattr(node, "slice", None)])
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    page = (ROOT / "docs" / "run_directory.md").read_text(encoding="utf-8").partition("## A line of curve.jsonl")[2]
    assert {"E1_train", "ended", "changed"} <= keys
    assert {key for key in keys if f"`{key}`" not in page} == set()


def test_links_were_as_near_to_the_model_as_the_page_says() -> None:
    """The bound is the one that the suite of nodes holds; the figures change with each run of it."""
    found = json.loads((ROOT / "docs" / "suites" / "nodes.json").read_text(encoding="utf-8"))["outcomes"]
    promised = [words["promise"] for words in found if words["case"].endswith("against the model")]
    text = (ROOT / "docs" / "predictions.md").read_text(encoding="utf-8")
    said = re.findall(r"^\| an (?:exchange|iteration) .* (within \d+ %)", text, re.MULTILINE)
    assert said == [" ".join(promise.split()[:3]) for promise in promised]


GENERATED = {"paper": paper_page, "results": results_page}
"""Pages that are made of measurements, by their folders under docs/."""


@pytest.mark.parametrize("name", GENERATED)
def test_a_page_of_measurements_is_that_of_its_numbers(name: str) -> None:
    """`make paper` and `make results` write them."""
    module = GENERATED[name]
    assert module.PAGE.read_text(encoding="utf-8") == module.page(module.read(module.FOLDER))


@pytest.mark.parametrize("name", GENERATED)
def test_measurements_say_where_they_come_from_and_are_all_shown(name: str) -> None:
    """Commit, date, machine, BLAS kernel, versions, and a command for each step; each file has a section."""
    module = GENERATED[name]
    for stem, found in module.read(module.FOLDER).items():
        assert stem in module.SECTIONS
        assert {"commit", "date", "machine", "blas", "versions", "steps"} <= found.keys()
        assert {"processor", "cores", "memory_gb"} == found["machine"].keys()
        assert found["steps"]
        for step in found["steps"].values():
            assert {"command", "date", "ranks", "seconds", "processor_seconds", "load_before"} <= step.keys()


@pytest.mark.parametrize("name", GENERATED)
def test_pictures_of_measurements_are_small_and_shown(name: str) -> None:
    module = GENERATED[name]
    text = module.PAGE.read_text(encoding="utf-8")
    for path in module.FOLDER.glob("*.png"):
        assert path.stat().st_size <= LARGEST
        assert f"({name}/{path.name})" in text, "a picture that no page shows"


def test_the_gallery_has_each_picture_with_the_command_that_makes_it() -> None:
    """And no other command: the pictures are small, and README and the first page lead there."""
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    commands = "".join(re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)).splitlines()
    assert commands == [f"python run/pages/gallery.py {name}" for name in gallery.PICTURES]
    assert re.findall(r"\]\(gallery/(\w+)\.png\)", text) == list(gallery.PICTURES)
    files = {path.stem: path.stat().st_size for path in gallery.FOLDER.iterdir()}
    assert files.keys() == gallery.PICTURES.keys()
    assert max(files.values()) <= gallery.LARGEST
    assert "(docs/gallery.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(gallery.md)" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_every_page_stands_in_the_site() -> None:
    """The navigation names all pages, and no others."""
    listed = re.findall(r"(?:- |: )([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them, on the site as on the forge."""
    headings = re.findall(r"^#+ (.+)$", "\n".join(prose(page.read_text(encoding="utf-8"))), re.MULTILINE)
    words = (re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip()) for text in words}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_headings(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([\w-]+)\)", page.read_text(encoding="utf-8")):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PRESENT, ids=named)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """A file is named from the root, or from a folder of the package; files of the worked example begin with my_."""
    found = re.findall(
        r"(?<![\w/.*<-])((?:[\w-]+/)+[\w-]+\.(?:py|md|toml|sh)|[a-z]\w+\.py)\b", page.read_text(encoding="utf-8")
    )
    missing = {name for name in found if not any((folder / name).exists() for folder in (page.parent, *FOLDERS))}
    assert {name for name in missing if not name.startswith("my_")} == set()


@pytest.mark.parametrize("page", PRESENT, ids=named)
def test_names_that_a_page_places_in_a_file_are_there(page: Path) -> None:
    """`NAME` in `package/file.py`, `NAME` of `package/file.py`, `NAME` (`package/file.py`)."""
    for name, place in re.findall(r"`([\w.]+)`\s+(?:in\s+|of\s+|\()`([\w/]+\.py)`", page.read_text(encoding="utf-8")):
        (path,) = {folder / place for folder in FOLDERS if (folder / place).exists()}
        for word in name.split("."):
            assert re.search(rf"\b{word}\b", path.read_text(encoding="utf-8")), f"{name} in {place}"


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent.name == "extending" and p.stem != "index"], ids=named)
def test_a_page_of_a_part_says_where_it_goes_in_macmpi_itself(page: Path) -> None:
    """As the first page of these promises."""
    assert "macmpi itself" in page.read_text(encoding="utf-8")


def test_a_default_that_a_config_names_is_the_default() -> None:
    """0 stands for that of the solver, or of the start."""
    usual, found = flat(USUAL), 0
    usual |= {"w_step.iterations": W_SOLVERS["gauss_newton"].iterations, "start.range": RANGE}
    for path in (ROOT / "run").glob("*.toml"):
        for table in re.split(r"^\[", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            for key, said in re.findall(r"^(\w+) = [^#\n]*# ([\d.e-]+) by default", table, re.MULTILINE):
                assert usual[f"{table.partition(']')[0]}.{key}"] == float(said), path.name
                found += 1
    assert found > 5


DEVELOPERS = [
    page for page in PRESENT if page.parent.name == "extending" or page.stem in ("architecture", "CONTRIBUTING")
]


@cache
def words_of_code() -> set[str]:
    files = (path for folder in ("macmpi", "tests", "run", "docs/extending") for path in (ROOT / folder).rglob("*.py"))
    return {word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("page", DEVELOPERS, ids=named)
def test_names_that_developers_read_are_in_the_code(page: Path) -> None:
    names = re.findall(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`", page.read_text(encoding="utf-8"))
    assert {word for name in names for word in name.split(".") if word} - words_of_code() == set()


STUDIES = [ROOT / "docs" / f"{name}.md" for name in ("studies", "defaults")]


@pytest.mark.parametrize("page", STUDIES, ids=named)
def test_tables_of_studies_say_where_they_come_from(page: Path) -> None:
    """A section with a table of measurements names machine, BLAS kernel and commit."""
    sections = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    measured = [section for section in sections if "|---" in section]
    assert len(measured) >= 2
    for section in measured:
        assert re.search(r"\b[Mm]achine\b", section), section
        assert re.search(r"\bkernel\b", section), section
        assert re.search(r"\b[Cc]ommits?\b", section), section


ERRORS = r"(\d\.\d{3} / \d\.\d{3})"
END_OF = re.compile(
    rf"`(?:run/)?(\w+?)(?:\.toml)?`(?:[^\d`]{{1,30}}?{ERRORS}|[^\n]*\|[^|/\n]*{ERRORS} \|$)", re.MULTILINE
)
"""A documented config, and the training and validation error that a page gives it: behind it, or last in its row."""


def test_the_errors_of_a_config_are_those_of_the_results_on_every_page() -> None:
    found: dict[str, set[str]] = {}
    for page in PRESENT:
        for name, near, last in END_OF.findall(page.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(near or last)
    measured = results_page.read(results_page.FOLDER)["curves"]["steps"]
    ends = {
        name: {f"{step['curve'][-1][key]:.3f}" for key in ("E1_train", "E1_val")} for name, step in measured.items()
    }
    assert {"usps_mac", "usps_fast"} <= found.keys() & ends.keys()
    assert {name: own for name, own in found.items() if len(own) > 1} == {}
    assert {
        name: own for name in found.keys() & ends.keys() for own in found[name] if set(own.split(" / ")) != ends[name]
    } == {}


def speedups(folder: Path, name: str) -> dict[str, float]:
    """Of each experiment on its largest measured number of ranks."""
    found = paper_page.read(folder)[name]
    scaled = {each["name"]: each["measured"] for step in found["steps"].values() for each in step.get("scaling", [])}
    return {
        experiment: measured["1"]["seconds"] / measured[max(measured, key=int)]["seconds"]
        for experiment, measured in scaled.items()
    }


def test_speedups_are_the_same_on_every_page() -> None:
    """Results, figure 6, the page of costs and the answer of the page of predictions."""
    ours, paper = speedups(results_page.FOLDER, "speedup"), speedups(paper_page.FOLDER, "fig6")
    assert {name: ours[name] for name in paper} == paper
    text = (ROOT / "docs" / "predictions.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"at efficiencies of (\d\.\d\d) to (\d\.\d\d)\.", text)
    assert said == (f"{min(ours.values()) / 2.0:.2f}", f"{max(ours.values()) / 2.0:.2f}")
    errors = re.findall(r"^\| `\w+` \| 2 \| .* \| [-+]([\d.]+)% \|$", results_page.PAGE.read_text(), re.MULTILINE)
    assert len(errors) == len(ours)
    assert f"| off by at most {max(errors, key=float)} % |" in text
    rows = r"^\| full MAC \| 5,000 .* \| (\d) \| (\S+) \| .* measured \|$"
    seconds = re.findall(rows, cost_page.page(), re.MULTILINE)
    one, two = (float(s) for _, s in seconds)
    assert one / two == pytest.approx(ours["usps_mac"], abs=0.1)


def test_epochs_of_many_points_take_as_long_on_every_page() -> None:
    """Results, for 10,000 points, and the page of costs, which rounds to two digits."""
    (means,) = re.findall(r"^\| stochastic \| (.+) \|$", results_page.PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    rows = r"^\| stochastic MAC \| (\S+) .* \| (\S+) \| .* measured \|$"
    found = re.findall(rows, cost_page.page(), re.MULTILINE)
    said = [float(seconds) * 1e4 / int(points.replace(",", "")) for points, seconds in found]
    assert said == pytest.approx([float(cell.split()[0]) for cell in means.split(" | ")], rel=0.05)


def test_what_a_page_says_of_a_table_is_what_the_table_has() -> None:
    """Selected sizes as in results; the price of zeros as in the table below."""
    text = (ROOT / "docs" / "algorithms" / "selection.md").read_text(encoding="utf-8")
    curve = results_page.read(results_page.FOLDER)["selection"]["steps"]["usps_sizes"]["curve"]
    E1, C = curve[-1]["E1_train"], next(r["cost"] for r in reversed(curve) if "cost" in r)
    assert f"| chosen | {E1 + C:.3f} | {E1:.3f} | {C:.3f} |" in text
    text = (ROOT / "docs" / "algorithms" / "weight_penalties.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"a validation error (\d+) % above that of the dense net", text)
    ends = [float(validation) for validation in re.findall(r"\| [\d.]+ / ([\d.]+) \|$", text, re.MULTILINE)]
    assert int(said) == round(100.0 * (ends[-2] / ends[-1] - 1.0))


def test_what_a_model_predicts_for_1024_ranks_is_said_once() -> None:
    """The answer of the page is a row of its table."""
    text = (ROOT / "docs" / "predictions.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"keeps 1,024 ranks busy: the cost model gives it an efficiency of (\d\.\d\d) there", text)
    table = text.partition("| full MAC, sharded |")[2].partition("| full MAC, one copy")[0]
    assert re.findall(r"^\| \| 1,024 \| [\d.]+ \| (\d\.\d\d) \|", table, re.MULTILINE) == [said]
