"""The Python examples of README and docs run as they stand, and the commands they show exist."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dvip import DVIPRegressor
from dvip.__main__ import app
from dvip.data import DATASETS
from dvip.estimators import candidates
from dvip.registry import LIKELIHOODS, PRIORS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


EXAMPLES = {
    f"{page.name}-{number}": code
    for page in PAGES
    for number, code in enumerate(examples(page), start=1)
}


@pytest.mark.parametrize("name", EXAMPLES)
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


def test_the_results_in_the_readme_are_those_in_the_repository():
    row = re.compile(r"^\|.*\| (?:dvip|paper) \|.* ± .*$", re.MULTILINE)
    shown = row.findall((ROOT / "README.md").read_text())
    nll = (ROOT / "results" / "uci.md").read_text().split("\n## ")[1]
    assert shown == row.findall(nll)
    assert len(shown) > 10


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
