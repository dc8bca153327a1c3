"""Random tables and damaged ones: what is read is what a plain reader reads, or it is refused."""

import csv
import gzip
import io
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dvip.cli import app
from dvip.tables import TableError, has_targets, read_blocks, survey_table
from dvip.tables.text_files import GAP_TEXTS

WORDS = ["red", "grün", "a b", "x,y", "5;6", 'say "hi"', '"', "line\nbreak", "tab\there", "=1+1"]
WORDS += ["日本", "🙂", "'", "NULL", "None", "nan", "", " ", "unknown", "-", "?", "\u2028", "N/A "]
NUMBERS = ["0", "-1", "1.5", "1e5", "1e400", "007", "+3", ".5", "5.", "1,234", "3.1%", "$1,200"]
NUMBERS += ["1,5", "9223372036854775808", "1e-320", "-0.0", "inf", "1_000", "0x10", "1.234.567"]
DATES = ["2020-01-01", "1066-10-14", "10:15", "1/2/2020"]
NASTY = ['"', ",", ";", "\t", "\n", "\r", "\r\n", "\x00", " ", "é", "\ufeff", "1", "\\", "\x1a"]


def random_cells(random, rows):
    """A column: mostly of one kind, sometimes with what does not belong there."""
    kind = random.choice(["numbers", "texts", "dates", "floats", "any"])
    if kind == "floats":
        scale = 10.0 ** random.integers(-9, 9)
        cells = [repr(float(value)) for value in scale * random.normal(size=rows)]
    else:
        pool = {"numbers": NUMBERS, "texts": WORDS, "dates": DATES, "any": WORDS + NUMBERS}[kind]
        few = random.choice(pool, size=random.integers(1, 6))
        cells = [str(cell) for cell in random.choice(few, size=rows)]
    if random.random() < 0.3:
        cells[random.integers(rows)] = str(random.choice(WORDS + NUMBERS))
    return cells


def random_file(random):
    """The bytes of a text table, and the end of its name."""
    columns, rows = random.integers(1, 6), random.integers(1, 40)
    names = [str(random.choice(["a", "b", "Größe", "x y", "n,m", "c", ""])) for _ in range(columns)]
    names = [name + str(place) * (random.random() < 0.95) for place, name in enumerate(names)]
    table = zip(*(random_cells(random, rows) for _ in range(columns)), strict=True)
    suffix = str(random.choice([".csv", ".csv", ".tsv", ".csv.gz"]))
    text = io.StringIO()
    writer = csv.writer(
        text,
        delimiter="\t" if suffix == ".tsv" else str(random.choice([",", ";", "\t"])),
        quoting=int(random.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])),
        lineterminator=str(random.choice(["\n", "\r\n", "\r"])),
    )
    writer.writerows([names, *table])
    content = text.getvalue()
    if random.random() < 0.5:
        for _ in range(random.integers(1, 4)):
            place, drop = random.integers(len(content) + 1), random.integers(0, 3)
            content = content[:place] + str(random.choice(NASTY)) + content[place + drop :]
    encoding = str(random.choice(["utf-8"] * 8 + ["utf-8-sig", "latin-1", "utf-16"]))
    data = content.encode(encoding, "replace")
    return gzip.compress(data) if suffix.endswith("gz") else data, suffix


def reference(data, suffix):
    """Names and cells of a text table as the `csv` module reads them; an error if it does not."""
    if suffix.endswith("gz"):
        data = gzip.decompress(data)
    text = re.sub("\r\n?", "\n", data.decode("utf-8-sig"))
    unquoted = re.sub('"[^"]*"', "", text.partition("\n")[0])
    separator = "\t" if suffix == ".tsv" else max(",", ";", "\t", key=unquoted.count)
    lines = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
    names, *rows = [line for line in lines if line]
    names = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(names)]
    return names, [row + [""] * (len(names) - len(row)) for row in rows], separator


def same_cell(found, cell, separator):
    """Whether a cell is what is there, or the gap that it stands for."""
    if pd.isna(found):
        return cell in GAP_TEXTS
    return found == cell or (separator != "," and found == cell.replace(",", "."))


def is_blank(row):
    return all(pd.isna(cell) or not cell.strip() or cell in GAP_TEXTS for cell in row)


def read_or_refused(read):
    """What is read; None if it is refused, in a line or two."""
    try:
        return read()
    except TableError as error:
        message = str(error)
    assert 10 < len(message) < 600
    assert len(message.splitlines()) <= 2
    return None


def check_text_table(path, data, suffix, rows):
    path.write_bytes(data)
    blocks = read_or_refused(lambda: list(read_blocks(path, rows=rows)))
    if blocks is None:
        return "refused"
    names = tuple(blocks[0].columns)
    as_text = read_or_refused(lambda: pd.concat(read_blocks(path, names, rows)))
    if as_text is None:
        return "refused"
    expected_names, expected, separator = reference(data, suffix)
    assert list(names) == expected_names
    expected = [row for row in expected if not is_blank(row)]
    found = [row for row in as_text.to_numpy(dtype=object) if not is_blank(row)]
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert len(theirs) == len(ours)
        assert all(same_cell(*pair, separator) for pair in zip(ours, theirs, strict=True))
    check_numbers(pd.concat(blocks), as_text)
    check_survey(path, names)
    return "read"


def check_numbers(typed, as_text):
    """What was read as numbers are the numbers that Python reads."""
    for name in typed.columns:
        if typed[name].dtype.kind in "iuf":
            for number, text in zip(typed[name], as_text[name], strict=True):
                assert pd.isna(text) if pd.isna(number) else float(text) == pytest.approx(number)


def check_survey(path, names):
    """The table can be encoded, as finite numbers, or there is a reason."""
    survey = read_or_refused(lambda: survey_table(path, names[-1:]))
    if survey is None or read_or_refused(lambda: survey.encoder.columns_) is None:
        return
    encoder, blocks = survey.encoder, read_blocks(path, survey.text_columns)
    labelled = [block[has_targets(block, survey.targets)] for block in blocks]
    inputs = np.concatenate([encoder.transform(block) for block in labelled if len(block)])
    assert inputs.shape == (survey.num_labelled, len(encoder.get_feature_names_out()))
    assert np.isfinite(inputs).all()


def fuzz(tmp_path, seeds):
    outcomes = []
    for seed in seeds:
        random = np.random.default_rng(seed)
        data, suffix = random_file(random)
        rows = [None, 1, 3, 50][random.integers(4)]
        try:
            outcomes.append(check_text_table(tmp_path / f"t{suffix}", data, suffix, rows))
        except BaseException as error:
            error.add_note(f"seed {seed}, in blocks of {rows}: {data[:300]!r}")
            raise
    # Neither of the two is the rule.
    assert 0.2 < outcomes.count("read") / len(outcomes) < 0.95


@pytest.mark.filterwarnings("ignore::dvip.TableWarning")
def test_random_tables_are_read_as_they_are_or_refused(tmp_path):
    fuzz(tmp_path, range(50))


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore::dvip.TableWarning")
def test_very_many_random_tables_are_read_as_they_are_or_refused(tmp_path):
    fuzz(tmp_path, range(1_000, 3_000))


def test_random_tables_through_the_command_line(tmp_path):
    """A model, or a line that says why not; never a traceback."""
    quick = ["--layers", "1", "--max-iter", "2", "--prior-samples", "3"]
    for seed in range(3):
        data, suffix = random_file(np.random.default_rng(seed))
        path, model = tmp_path / f"t{suffix}", tmp_path / f"m{seed}"
        path.write_bytes(data)
        names = read_or_refused(lambda path=path: list(next(read_blocks(path)).columns))
        target = "y" if names is None else names[-1]
        result = CliRunner().invoke(
            app, ["fit", str(path), "--target", target, "--out", str(model), *quick]
        )
        assert result.exit_code in (0, 1), (seed, result.output)
        assert result.exception is None or isinstance(result.exception, SystemExit), seed
        lines = result.stderr.strip().splitlines()
        assert all(line.startswith(("Error: ", "Warning: ", "Chosen ")) for line in lines), (
            seed,
            lines,
        )
        assert model.exists() == (result.exit_code == 0)


def random_frame(random):
    """Columns of the types that Parquet knows."""
    rows = int(random.integers(1, 60))
    gaps = random.random(rows) < 0.2
    makers = {
        "float": lambda: np.where(gaps, np.nan, random.normal(size=rows)),
        "single": lambda: random.normal(size=rows).astype(np.float32),
        "int": lambda: random.integers(-(2**62), 2**62, size=rows),
        "unsigned": lambda: random.integers(0, 2**64 - 1, size=rows, dtype=np.uint64),
        "nullable": lambda: pd.array(np.where(gaps, None, 1), dtype="Int64"),
        "truth": lambda: pd.array(np.where(gaps, None, True), dtype="boolean"),
        "text": lambda: random.choice(np.array([*WORDS, None], dtype=object), rows),
        "category": lambda: pd.Categorical(random.choice(["u", "v", "w"], rows)),
        "date": lambda: pd.to_datetime(random.integers(-(9 * 10**9), 9 * 10**9, rows), unit="s"),
        "bytes": lambda: [b"\xff\x00"] * rows,
        "lists": lambda: [[1, 2]] * rows,
    }
    chosen = random.choice(list(makers), size=random.integers(1, 7))
    return pd.DataFrame({f"{kind} {place}": makers[kind]() for place, kind in enumerate(chosen)})


@pytest.mark.filterwarnings("ignore::dvip.TableWarning")
def test_random_parquet_tables_are_read_as_they_are_and_damaged_ones_are_one_error(tmp_path):
    path = tmp_path / "t.parquet"
    for seed in range(30):
        random = np.random.default_rng(seed)
        frame = random_frame(random)
        frame.to_parquet(path, row_group_size=int(random.integers(1, 60)))
        blocks = list(read_blocks(path, rows=int(random.integers(1, 30))))
        for name in frame.columns:
            theirs = frame[name].to_numpy(dtype=object)
            ours = np.concatenate([block[name].to_numpy(dtype=object) for block in blocks])
            for found, cell in zip(ours, theirs, strict=True):
                gap = np.isscalar(pd.isna(cell)) and pd.isna(cell)
                assert pd.isna(found) if gap else np.array_equal(found, cell), (seed, name)
        check_survey(path, tuple(frame.columns))
        data = bytearray(path.read_bytes())
        for _ in range(3):
            data[random.integers(len(data))] = random.integers(256)
        path.write_bytes(data[: random.integers(len(data) // 2, len(data) + 1)])
        read_or_refused(lambda: list(read_blocks(path)))
