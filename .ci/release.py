"""Ends with an error unless a tag, the version and the changelog agree: before a release.

python .ci/release.py v0.2.0
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def disagreements(tag: str, root: Path = ROOT) -> list[str]:
    """What is not ready for a release of that tag."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    changelog = (root / "CHANGELOG.md").read_text()
    cited = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    dated = re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE)
    found = []
    if tag != f"v{version}":
        found.append(f"The tag is {tag}, but the version in pyproject.toml is {version}.")
    if cited is None or cited[1] != version:
        found.append(f"CITATION.cff is not of version {version}.")
    if dated is None:
        found.append(f"CHANGELOG.md has no heading '## {version} (YYYY-MM-DD)'.")
    return found


if __name__ == "__main__":
    problems = disagreements(sys.argv[1])
    print("\n".join(problems) or f"{sys.argv[1]} is ready.")
    sys.exit(bool(problems))
