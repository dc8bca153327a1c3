"""Tables of pages that are taken from files of results: `python docs/tables.py` takes them anew.

A comment above a table says where it is from. `<!-- table of FILE, SECTION -->` is the first table
of a section, as it is; below `<!-- rows of FILE, SECTION -->` each row is replaced by the one that
begins with the same names. The section may be left out.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
ROWS = r"(?:^\|.*\n)"
TABLE = re.compile(rf"{ROWS}+", re.MULTILINE)
MARKED = re.compile(rf"(<!-- (table|rows) of (\S+?)(?:, (.+?))? -->\n\n?)({ROWS}+)", re.MULTILINE)


def names(row: str) -> tuple[str, ...]:
    """The cells of a row up to the first number."""
    cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
    numbers = [place for place, cell in enumerate(cells) if re.match(r"[-+]?\d", cell)]
    return tuple(cells[: numbers[0]] if numbers else cells)


def taken(mark: re.Match) -> str:
    """A marked table with the numbers that are in its file."""
    above, kind, file, title, table = mark.groups()
    text = "\n" + (ROOT / file).read_text()
    if title is not None:
        text = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    if kind == "table":
        return above + TABLE.search(text)[0]
    found: dict[tuple[str, ...], str] = {}
    for row in TABLE.findall(text):
        for line in row.splitlines(keepends=True):
            found.setdefault(names(line), line)
    lines = table.splitlines(keepends=True)
    return above + "".join(lines[:2]) + "".join(found[names(line)] for line in lines[2:])


def refreshed(page: Path) -> str:
    """The text of a page with all its marked tables taken anew."""
    return MARKED.sub(taken, page.read_text())


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(refreshed(page))
