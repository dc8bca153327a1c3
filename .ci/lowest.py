"""Prints `requirements-lowest.txt`: the oldest versions that pyproject.toml allows, to test with.

python .ci/lowest.py > requirements-lowest.txt
"""

import re
import tomllib
from pathlib import Path

HEADER = """\
# The oldest versions that pyproject.toml allows, made by `python .ci/lowest.py`. To test with them:
# pip install -c requirements-lowest.txt ".[test]" && pytest
"""
EXTRAS = ("test",)
# Of the time of these versions: with newer ones they only warn, but warnings are errors in tests.
COMPANIONS = ("click==8.2.1", "pyparsing==3.2.3")


def lowest(pyproject: Path) -> str:
    """The lower bound of every requirement as a constraint, a line each."""
    project = tomllib.loads(pyproject.read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in EXTRAS:
        wanted += project["optional-dependencies"][extra]
    bounds = [re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", line) for line in wanted]
    if None in bounds:
        raise SystemExit(f"{wanted[bounds.index(None)]} must be a name and a lower bound.")
    lines = [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]
    return HEADER + "\n".join([*lines, *COMPANIONS, ""])


if __name__ == "__main__":
    print(lowest(Path(__file__).parent.parent / "pyproject.toml"), end="")
