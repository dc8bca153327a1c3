"""Files of the repository outside docs/ as pages of the site, and links that find them there.

Pages are written for readers of the repository: links are paths in it. Here each becomes a path in
the site. What is linked to and is no page, such as a script or a file of results, is copied.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("CHANGELOG.md", "results/*.md", "benchmarks/README.md", "benchmarks/results/*.md")
# Folders that pages link to, and the page that lists what is in them.
FOLDERS = {"examples": "gallery/index.md", "benchmarks/results": "benchmarks/README.md"}
FENCED = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
# What a browser loads by itself; a link that a reader may follow is none of that.
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source|video|audio|object|embed)\b[^>]*?"
    r"\b(?:src|href|data)\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)",
    re.IGNORECASE,
)
LOADED_BY_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)")


def place(path: Path) -> str:
    """Where a file of the repository is in the site."""
    inside = path.relative_to(ROOT).as_posix()
    if inside in FOLDERS:
        return FOLDERS[inside]
    return inside.removeprefix("docs/")


def on_files(files, config):
    """Adds the pages that are outside docs/."""
    for path in sorted(path for pattern in PAGES for path in ROOT.glob(pattern)):
        files.append(File.generated(config, place(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns links from paths in the repository to paths in the site."""
    if page.file.abs_src_path is None:  # made by the build, with links of the site
        return markdown
    source = Path(page.file.abs_src_path)

    def turned(link):
        target = (source.parent / link[2]).resolve()
        if not target.exists() or not target.is_relative_to(ROOT):
            return link[0]  # which the build then warns of
        uri = place(target)
        example = files.get_file_from_path(f"gallery/{target.stem}.md")
        if target.parent == ROOT / "examples" and example is not None:
            uri = example.src_uri
        elif files.get_file_from_path(uri) is None and target.is_file():
            files.append(File.generated(config, uri, abs_src_path=str(target)))
        return (
            link[1] + posixpath.relpath(uri, posixpath.dirname(page.file.src_uri)) + (link[3] or "")
        )

    parts = FENCED.split(markdown)
    parts[::2] = [LINK.sub(turned, part) for part in parts[::2]]
    return "".join(parts)


def on_post_build(config):
    """Fails where a page would ask another host for something as it is opened."""
    site = Path(config.site_dir)
    found = [
        f"{path.relative_to(site)}: {address}"
        for pattern, what in (("*.html", LOADED), ("*.css", LOADED_BY_STYLE))
        for path in sorted(site.rglob(pattern))
        for address in what.findall(path.read_text())
    ]
    if found:
        raise PluginError("Pages load from other hosts:\n" + "\n".join(found))
