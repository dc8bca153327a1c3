"""Ready to be published: what is built, said and promised about the package as a whole."""

import inspect
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import dvip

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# Largest sizes, in bytes: nobody should wait for what they do not use.
MAX_WHEEL, MAX_SDIST = 500_000, 5_000_000

# What users of earlier versions may have imported from `dvip`.
NAMES = {
    "0.1.0": """ArraySource BayesianNeuralNetwork Block CheckpointError CheckpointWarning
        Classification Convolutional DVIPClassifier DVIPRegressor DeepGPClassifier DeepGPRegressor
        GaussianMixture GaussianProcess ImplicitProcess Likelihood LostProcess ModelFileError
        NeuralSampler Probit Recurrent RobustMax SIPRegressor Source TrainingDiverged
        WarpedGaussianProcess load open_source""",
}
# And what they may have passed.
PARAMETERS = {
    "DVIPRegressor": """n_layers n_prior_samples prior alpha max_iter batch_size learning_rate
        n_predictive_samples n_training_samples n_units shared_prior input_propagation
        n_inducing precision random_state verbose""",
    "DVIPRegressor.fit": "X y sample_weight checkpoint_dir checkpoint_every resume",
    "DVIPRegressor.predict": "X return_std",
    "DVIPRegressor.predict_dist": "X",
    "DVIPRegressor.sample_functions": "n random_state",
    "DVIPClassifier.predict_proba": "X",
    "open_source": "path target columns weight",
    "load": "path prior likelihood",
}


def script(name):
    """A module of the folder with what checks and releases need."""
    spec = spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("version", NAMES)
def test_names_of_earlier_versions_are_there(version):
    assert set(NAMES[version].split()) <= set(dvip.__all__)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_of_earlier_versions_are_there(name):
    thing = dvip
    for part in name.split("."):
        thing = getattr(thing, part)
    found = list(inspect.signature(thing).parameters)
    assert set(PARAMETERS[name].split()) <= set(found)


def test_the_version_is_said_in_one_way(tmp_path):
    """The tag of a release, the version, the citation and the changelog."""
    release = script("release")
    version = PROJECT["version"]
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    assert not any("CITATION" in line for line in release.disagreements(f"v{version}"))
    with open(tmp_path / "CHANGELOG.md", "a") as changelog:
        changelog.write(f"\n## {version} (2026-12-01)\n")
    assert release.disagreements(f"v{version}", tmp_path) == []
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n")
    (tmp_path / "CITATION.cff").write_text("version: 7\n")
    assert len(release.disagreements("v0.0.1", tmp_path)) == 3


def test_the_lowest_versions_are_those_of_the_project():
    expected = script("lowest").lowest(ROOT / "pyproject.toml")
    assert (ROOT / "requirements-lowest.txt").read_text() == expected


def test_types_are_for_others():
    assert (Path(dvip.__file__).parent / "py.typed").exists()


def test_the_changelog_has_a_place_for_new_entries():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased" or headings[0].startswith(PROJECT["version"])
    assert any(heading.startswith("0.1.0") for heading in headings)


def test_the_citation():
    yaml = pytest.importorskip("yaml", reason="needs pip install pyyaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["license"] == PROJECT["license"]
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == [
        "Ortega",
        "Rodríguez Santana",
        "Hernández-Lobato",
    ]
    assert (paper["title"], paper["year"]) == ("Deep Variational Implicit Processes", 2023)


def test_workflows():
    yaml = pytest.importorskip("yaml", reason="needs pip install pyyaml")
    assert [path.stem for path in WORKFLOWS] == ["release", "slow", "tests"]
    texts = [path.read_text() for path in (*WORKFLOWS, ROOT / ".pre-commit-config.yaml")]
    *workflows, hooks = map(yaml.safe_load, texts)
    jobs = [job for workflow in workflows for job in workflow["jobs"].values()]
    for workflow in workflows:
        assert workflow["permissions"] == {"contents": "read"}
    for job in jobs:
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@(release/)?v\d+", step["uses"])
    named = re.findall(r"\btests/[\w/]+\.py", "".join(texts))
    assert named
    assert all((ROOT / name).exists() for name in named)
    ids = [hook["id"] for repository in hooks["repos"] for hook in repository["hooks"]]
    assert ids == ["ruff", "ruff-format", "mypy"]
    tested = workflows[-1]["jobs"]["newest"]["strategy"]["matrix"]["python"]
    claimed = [kind.rpartition(" ")[2] for kind in PROJECT["classifiers"] if "Python :: 3." in kind]
    assert tested == claimed


def test_pages_for_those_who_come():
    for name in ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"):
        text = (ROOT / name).read_text()
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (ROOT / target).exists(), f"{name} links to {target}"


@pytest.mark.slow
def test_what_is_built(tmp_path):
    pytest.importorskip("build", reason="needs pip install build")
    command = [sys.executable, "-m", "build", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    version = PROJECT["version"]
    wheel = tmp_path / f"dvip-{version}-py3-none-any.whl"
    sdist = tmp_path / f"dvip-{version}.tar.gz"
    assert wheel.stat().st_size < MAX_WHEEL
    assert sdist.stat().st_size < MAX_SDIST
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"dvip/py.typed", "dvip/paper/paper_results.csv"} <= names
    assert all(name.startswith(("dvip/", f"dvip-{version}.dist-info/")) for name in names)
    with tarfile.open(sdist) as archive:
        inside = [name.partition("/")[2] for name in archive.getnames()]
    assert not [name for name in inside if re.match(r"(benchmarks/)?results/", name)]
    hidden = {name.split("/")[0] for name in inside if name.startswith(".")}
    assert hidden <= {".ci", ".github", ".gitignore", ".pre-commit-config.yaml"}  # no caches
    assert {"LICENSE", "README.md", "CHANGELOG.md", "tests/conftest.py"} <= set(inside)
    pytest.importorskip("twine", reason="needs pip install twine")
    check = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
