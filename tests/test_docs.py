"""The Python examples of README and docs run as they stand, and the commands they show exist."""

import ast
import dataclasses
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import dvip
import dvip.plots
from dvip import DVIPRegressor
from dvip.__main__ import app
from dvip.data import DATASETS
from dvip.estimators import candidates
from dvip.registry import LIKELIHOODS, PRIORS

pytestmark = pytest.mark.usefixtures("short_chains")

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


EXAMPLES = {
    f"{page.name}-{number}": code
    for page in PAGES
    for number, code in enumerate(examples(page), start=1)
}


# What takes long to compile, and is much like examples of other pages.
SLOW = {
    *("default.md-1", "start.md-1", "start.md-2", "sampling.md-1", "ensembles.md-1"),
    *("neighbours.md-1", "neighbours.md-2", "images-and-sequences.md-1"),
    *("images-and-sequences.md-2", "checkpoints.md-1", "objectives.md-1"),
    *("index.md-1", "large-data.md-1", "large-data.md-2", "everyday.md-1", "datasets.md-1"),
    *("any-program.md-1", "any-program.md-3", "any-program.md-4", "contributing.md-2"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in EXAMPLES]
)
def test_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for steps in ("STEPS", "STEPS_FOR_SOME", "STEPS_FOR_MANY"):  # whether it runs, not how well
        monkeypatch.setattr(candidates, steps, 100)
    names: dict = {}
    exec(EXAMPLES[name], names)
    results = [names[key] for key in ("mean", "std", "values", "probabilities") if key in names]
    assert results
    assert all(np.isfinite(result).all() for result in results)


def test_commands_of_the_readme_exist():
    commands = set(re.findall(r"^dvip (\w+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    assert commands >= {"fit", "predict", "evaluate"}
    for command in commands:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0


def test_links_inside_the_repository_lead_somewhere():
    folders = [ROOT / "results" / "README.md", ROOT / "benchmarks" / "README.md"]
    for page in (*PAGES, *folders):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def file_as_module(name: str):
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


PAGES_OF_RESULTS = (
    "README.md",
    *(f"docs/{name}.md" for name in ("default", "neighbours", "results", "when")),
)


@pytest.mark.parametrize("name", PAGES_OF_RESULTS)
def test_results_in_pages_are_those_in_the_repository(name):
    """`python docs/tables.py` takes them anew."""
    tables = file_as_module("docs/tables.py")
    shown = (ROOT / name).read_text()
    assert len(tables.MARKED.findall(shown)) == len(re.findall("<!-- (?:rows|table) of", shown)) > 0
    assert shown == tables.refreshed(ROOT / name)


def test_every_public_name_has_a_place_in_the_reference():
    text = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    named = re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)
    assert len(named) == len(set(named))
    assert {f"dvip.{name}" for name in dvip.__all__} <= set(named)
    displays = {f"dvip.plots.{name}" for name in dvip.plots.__all__ if name.endswith("Display")}
    assert displays <= set(named)


def test_every_example_is_in_the_gallery_or_too_long_for_it():
    names = {path.stem for path in (ROOT / "examples").glob("*.py")}
    hook = (ROOT / "docs" / "hooks" / "gallery.py").read_text()
    constants = {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in ast.parse(hook).body
        if isinstance(statement, ast.Assign) and statement.targets[0].id in ("SECTIONS", "LONG")
    }
    shown = [name for section in constants["SECTIONS"].values() for name in section]
    assert names == {*shown, *constants["LONG"]}
    pages = re.findall(r"gallery/(\w+)\.md", (ROOT / "mkdocs.yml").read_text())
    assert pages == ["index", *shown]


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"DVIP_GALLERY": "off"}
    done = subprocess.run(
        build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for page in ("index", "start", "when", "gallery/counts", "results/uci", "CHANGELOG"):
        assert (tmp_path / f"{page}.html").exists()
    estimators = (tmp_path / "reference" / "estimators.html").read_text()
    assert 'id="dvip.DVIPRegressor.predict_interval"' in estimators
    assert "regularised" in (tmp_path / "reference" / "priors.html").read_text()  # an option
    design = (tmp_path / "design.html").read_text()
    assert 'href="benchmarks/results/streaming.html"' in design

    (tmp_path / "page.html").write_text('<p><script async src="https://example.org/a.js"></script>')
    (tmp_path / "page.css").write_text('@import "//example.org/a.css"; a { b: url(c.png) }')
    hook = file_as_module("docs/hooks/repository.py")
    with pytest.raises(Exception, match=r"example\.org/a\.js\n.*example\.org/a\.css$"):
        hook.on_post_build(SimpleNamespace(site_dir=tmp_path))


def section(page: Path, title: str) -> str:
    return page.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_map_has_every_module_once():
    source = ROOT / "src" / "dvip"
    modules = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    modules = {path for path in modules if not path.endswith("__init__.py")}
    named = re.findall(r"`([\w/]+\.py)`", section(ROOT / "docs/design.md", "The map"))
    assert sorted(named) == sorted(modules)


def test_files_that_the_docs_name_exist():
    folders = [ROOT, ROOT / "src/dvip", ROOT / "src/dvip/paper/datasets", ROOT / "tests"]
    for name in ("design.md", "contributing.md", "datasets.md"):
        text = (ROOT / "docs" / name).read_text()
        if name == "design.md":
            text = text.replace(section(ROOT / "docs" / name, "What moved where"), "")
        for file in re.findall(r"`([\w/]+\.py)`", text):
            assert any((folder / file).exists() for folder in folders), f"{name}: {file}"


def test_every_prior_is_documented():
    page = (ROOT / "docs/priors.md").read_text()
    for name, process in PRIORS.items():
        assert f'| `"{name}"` | `{process.__name__}` |' in page
        assert f'"{name}"' in DVIPRegressor.__doc__
        options = [field.name for field in dataclasses.fields(process) if field.metadata]
        assert all(f"`{option}`" in page for option in options if option != "num_inputs")


def test_every_likelihood_is_documented():
    page = (ROOT / "docs/likelihoods.md").read_text()
    for name, likelihood in LIKELIHOODS.items():
        assert f'| `"{name}"` | `{likelihood.__name__}` |' in page


def test_every_dataset_is_documented():
    page = (ROOT / "docs/datasets.md").read_text()
    for name, dataset in DATASETS.items():
        splits = "by seed" if dataset.num_splits is None else dataset.num_splits
        assert f"| `{name}` | {dataset.rows:,} x {dataset.num_inputs} | {splits} |" in page
        assert all(path.rpartition("/")[0] + "/" in page for path in dataset.files)


def test_the_test_command_of_the_readme_is_what_ci_runs():
    command = 'pip install ".[test]" && pytest'
    assert command in (ROOT / "README.md").read_text().splitlines()
    assert command in (ROOT / ".ci/run").read_text().splitlines()
