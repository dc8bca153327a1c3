"""Tables of pages that are taken from files of results: `python docs/tables.py` takes them anew.

A comment above a table says where it is from. `<!-- table of FILE, SECTION -->` is the first table
of a section, as it is; below `<!-- rows of FILE, SECTION -->` each row is replaced by the one that
begins with the same names, of a table with the same head if there is one. The section may be left
out.
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
    found: dict[tuple[str, ...], tuple[str, str]] = {}  # the row, and the head of its table
    head = table.splitlines()[0]
    blocks = sorted(TABLE.findall(text), key=lambda block: block.splitlines()[0] != head)
    for block in blocks:
        first, rule, *rows = block.splitlines(keepends=True)
        for row in rows:
            found.setdefault(names(row), (row, first + rule))
    wanted = [names(row) for row in table.splitlines()[2:]]
    gone = [row for row in wanted if row not in found]
    if gone:
        raise LookupError(f"{file} has no row of {gone[0]} any more: take another, or none.")
    return above + found[wanted[0]][1] + "".join(found[row][0] for row in wanted)


def refreshed(page: Path) -> str:
    """The text of a page with all its marked tables taken anew."""
    return MARKED.sub(taken, page.read_text())


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(refreshed(page))
