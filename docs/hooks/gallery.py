"""The gallery: runs the examples and makes a page of each, with what it prints and draws.

An example is run in a folder of its own, from which its PNG files are taken. What came out is kept
in build/gallery by a hash of the example and of the library: a second build runs nothing.
DVIP_GALLERY=off runs nothing at all: pages then show what is kept, or the code alone.
"""

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "gallery"
SECTIONS = {
    "First steps": ("first_regression", "first_classifier", "look_at_a_model"),
    "What is known of the noise": ("counts", "measurement_errors"),
    "What is known of the function": ("own_prior", "damped_oscillator", "growth_curves"),
    "More rows, later rows": (
        "stream_a_folder",
        "stop_and_resume",
        "take_in_new_rows",
        "choose_measurements",
    ),
}
# Not run by the build: they take minutes.
LONG = ("co2_season", "predators_and_prey", "optimise_functions")
SECONDS = 600


class Example(NamedTuple):
    """What a page is made of."""

    name: str
    title: str
    text: str
    code: str
    output: str
    figures: tuple[Path, ...]


def library() -> bytes:
    """A hash of the library: where it changes, examples may print something else."""
    source = ROOT / "src" / "dvip"
    files = sorted(source.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).digest()


def outcome(path: Path, version: bytes) -> Path | None:
    """The folder with output and figures of an example, which is run if need be."""
    digest = hashlib.sha256(version + path.read_bytes()).hexdigest()[:16]
    folder = KEPT / f"{path.stem}-{digest}"
    if folder.exists():
        return folder
    if os.environ.get("DVIP_GALLERY") == "off":
        return None
    KEPT.mkdir(parents=True, exist_ok=True)
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": os.pathsep.join(paths)}
    with tempfile.TemporaryDirectory(dir=KEPT) as temporary:
        work, result = Path(temporary, "work"), Path(temporary, "result")
        work.mkdir()
        result.mkdir()
        try:
            done = subprocess.run(
                [sys.executable, str(path)],
                cwd=work,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise PluginError(f"{path.name} took more than {SECONDS} seconds.") from late
        if done.returncode:
            raise PluginError(f"{path.name} failed:\n{done.stderr[-2000:]}")
        for figure in work.glob("*.png"):
            shutil.move(figure, result / figure.name)
        (result / "output.txt").write_text(done.stdout)
        for old in KEPT.glob(f"{path.stem}-*"):
            shutil.rmtree(old)
        result.rename(folder)
    return folder


def read(name: str, version: bytes) -> Example:
    """An example with what came out of it."""
    path = ROOT / "examples" / f"{name}.py"
    code = path.read_text()
    first = ast.parse(code).body[0]
    title, _, text = first.value.value.partition("\n")
    text = text.replace(f"python examples/{name}.py", "").strip()
    code = "\n".join(code.splitlines()[first.end_lineno :]).strip()
    folder = outcome(path, version)
    if folder is None:
        return Example(name, title, text, code, "", ())
    figures = tuple(sorted(folder.glob("*.png")))
    return Example(name, title, text, code, (folder / "output.txt").read_text(), figures)


def heading(example: Example) -> str:
    """The title up to its colon."""
    return example.title.partition(":")[0].rstrip(".")


def summary(example: Example) -> str:
    """The title after its colon, as a sentence."""
    rest = example.title.partition(":")[2].strip()
    return rest[:1].upper() + rest[1:]


def page(example: Example) -> str:
    """The page of an example."""
    pictures = "\n\n".join(
        f"![{heading(example)}]({example.name}-{figure.name})" for figure in example.figures
    )
    output = f"```text\n{example.output.rstrip()}\n```" if example.output.strip() else ""
    command = f"```\npython examples/{example.name}.py\n```"
    code = f"```python\n{example.code}\n```"
    texts = (f"# {heading(example)}", summary(example), example.text)
    parts = (*texts, pictures, command, output, "## The code", code)
    return "\n\n".join(part for part in parts if part) + "\n"


def index(sections: dict[str, list[Example]]) -> str:
    """The page that lists them all."""
    lines = [
        "# Gallery",
        "Short programs, each a file of the folder `examples/` that runs in a minute or less. "
        "Figures and what they print were made when this site was built.",
    ]
    for section, examples in sections.items():
        lines.append(f"## {section}")
        for example in examples:
            lines.append(f"**[{heading(example)}]({example.name}.md).** {summary(example)}")
            if example.figures:
                figure = f"{example.name}-{example.figures[0].name}"
                lines.append(f"[![{heading(example)}]({figure}){{ width=420 }}]({example.name}.md)")
    longer = ", ".join(f"[{name}.py](../examples/{name}.py)" for name in LONG)
    lines.append(f"## Longer ones\n\nThese take minutes, and were not run: {longer}.")
    return "\n\n".join(lines) + "\n"


def on_files(files, config):
    """Adds the pages and their figures."""
    version = library()
    names = [name for section in SECTIONS.values() for name in section]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        examples = dict(zip(names, pool.map(lambda name: read(name, version), names), strict=True))
    for example in examples.values():
        files.append(File.generated(config, f"gallery/{example.name}.md", content=page(example)))
        for figure in example.figures:
            uri = f"gallery/{example.name}-{figure.name}"
            files.append(File.generated(config, uri, abs_src_path=str(figure)))
    for name in LONG:
        path = ROOT / "examples" / f"{name}.py"
        files.append(File.generated(config, f"examples/{name}.py", abs_src_path=str(path)))
    sections = {title: [examples[name] for name in names] for title, names in SECTIONS.items()}
    files.append(File.generated(config, "gallery/index.md", content=index(sections)))
    return files
