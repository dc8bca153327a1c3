"""Rows that lie elsewhere: at addresses of other filesystems, and in data of other libraries."""

import re
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows_in_files import NAMES, SETTINGS, table
from typer.testing import CliRunner

from dvip import DVIPRegressor, TableError, open_source
from dvip.__main__ import app
from dvip.tables import read_table
from dvip.tables.addresses import TableAddress, located

BUCKET = "measurements"


@pytest.fixture(scope="module")
def frame():
    return table(300)


@pytest.fixture(scope="module")
def model(frame):
    """Of arrays streamed, which is what the same rows from elsewhere must give."""
    return DVIPRegressor.paper(**SETTINGS).fit(open_source(pa.Table.from_pandas(frame), target="y"))


def rows_of(source):
    block = source.gathered()
    return np.column_stack([block.inputs, block.targets])


def test_addresses_of_files_are_files(frame, tmp_path):
    (tmp_path / "with space" / "year=2020").mkdir(parents=True)
    path = tmp_path / "with space" / "year=2020" / "t.parquet"
    frame.to_parquet(path)
    (tmp_path / "with space" / "_notes.parquet").write_text("of the program that wrote it")
    address = located(path.as_uri())
    assert isinstance(address, TableAddress)
    np.testing.assert_array_equal(rows_of(open_source(path.as_uri(), "y")), frame)
    for name in ("t.csv", "t.csv.gz"):
        frame.to_csv(tmp_path / name, index=False)
        np.testing.assert_array_equal(rows_of(open_source((tmp_path / name).as_uri(), "y")), frame)
    folder = (tmp_path / "with space").as_uri()
    assert set(read_table(folder)["year"]) == {"2020"}
    source = open_source(folder, "y", columns=NAMES)
    np.testing.assert_array_equal(rows_of(source), frame)
    before = source.fingerprint()
    assert before == open_source(folder, "y", columns=NAMES).fingerprint()
    frame[:100].to_parquet(path)
    assert source.fingerprint() != before


def test_the_command_line_takes_addresses(frame, tmp_path):
    frame.to_parquet(tmp_path / "t.parquet")
    address, model = (tmp_path / "t.parquet").as_uri(), str(tmp_path / "model")
    small = ["--inference", "vi", "--layers", "1", "--prior-samples", "5", "--max-iter", "20"]
    result = CliRunner().invoke(app, ["fit", address, "--target", "y", "--out", model, *small])
    assert result.exit_code == 0, result.output
    assert f"Read {address}: 300 rows, 4 columns." in result.output
    result = CliRunner().invoke(app, ["evaluate", model, address, "--json"])
    assert result.exit_code == 0, result.output
    assert '"rows": 300' in result.output
    result = CliRunner().invoke(app, ["evaluate", model, "ftp://host/t.parquet"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ftp://host/t.parquet cannot be read")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ftp://host/t.parquet", r"ftp:// is none of s3://"),
        ("https://host/t.parquet?key=secret", r"^https://host/t.parquet cannot be read"),
        ("file:///nowhere/t.parquet", r"^There is no file file:///nowhere/t.parquet"),
        ("s3:///t.parquet", r"s3:///t.parquet is not an address that can be read: Missing bucket"),
    ],
)
def test_addresses_that_cannot_be_read(address, message):
    with pytest.raises(TableError, match=message) as caught:
        open_source(address, target="y")
    assert "secret" not in str(caught.value)


def test_other_mistakes_with_addresses(tmp_path, frame):
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(TableError, match=r"is an Excel file, which is read from folders only"):
        open_source((tmp_path / "t.xlsx").as_uri(), target="y")
    (tmp_path / "t.csv.gz").write_text("x,y")
    with pytest.raises(TableError, match=r"t.csv.gz cannot be read: Not a gzipped file"):
        open_source((tmp_path / "t.csv.gz").as_uri(), target="y")
    (tmp_path / "t.parquet").write_bytes(b"PAR1" + 100 * b"x")
    with pytest.raises(TableError, match=r"may be damaged"):
        open_source((tmp_path / "t.parquet").as_uri(), target="y")
    with pytest.raises(TableError, match=r"give it as text, not as a Path"):
        open_source(Path("s3://bucket/t.parquet"), target="y")
    assert str(located("s3://key:secret@bucket/t.parquet?region=x")) == "s3://bucket/t.parquet"


def test_nothing_is_written_to_an_address(tmp_path, monkeypatch, frame):
    monkeypatch.chdir(tmp_path)
    frame.to_csv("t.csv", index=False)
    fit = ["fit", "t.csv", "--target", "y", "--out", "s3://bucket/model"]
    result = CliRunner().invoke(app, fit)
    assert result.exit_code == 1
    assert "files are written to folders of this machine" in result.output
    assert not (tmp_path / "s3:").exists()


@pytest.fixture(scope="module")
def s3(frame):
    """A server of S3 on this machine, with a file and a folder of files; gives an address's end."""
    server_of = pytest.importorskip("moto.server", reason='needs pip install "moto[server,s3]"')
    from pyarrow.fs import FileSystem

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        _, port = server.get_host_and_port()
        end = f"?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
        system, _ = FileSystem.from_uri(f"s3://{BUCKET}{end}&allow_bucket_creation=true")
        system.create_dir(BUCKET)
        whole = pa.Table.from_pandas(frame)
        for name, part in {
            "t.parquet": whole,
            "parts/a.parquet": whole[:100],
            "parts/deeper/b.parquet": whole[100:],
            "parts/_notes.parquet": whole[:1],
        }.items():
            pq.write_table(part, f"{BUCKET}/{name}", filesystem=system)
        with system.open_output_stream(f"{BUCKET}/t.csv") as file:
            file.write(frame.to_csv(index=False).encode())
        yield end
        server.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_s3(s3, frame, model, tmp_path):
    for name in ("t.csv", "parts", "t.parquet"):
        source = open_source(f"s3://{BUCKET}/{name}{s3}", target="y")
        assert source.num_rows == (None if name == "t.csv" else len(frame))
        np.testing.assert_array_equal(rows_of(source), frame)
    again = DVIPRegressor.paper(**SETTINGS).fit(source)
    np.testing.assert_array_equal(again.predict(frame[NAMES]), model.predict(frame[NAMES]))
    folder = tmp_path / "model"
    again.save(folder)
    predict = ["predict", str(folder), f"s3://{BUCKET}/parts{s3}", "--out", str(tmp_path / "p.csv")]
    result = CliRunner().invoke(app, predict)
    assert result.exit_code == 0, result.output
    written = pd.read_csv(tmp_path / "p.csv")["mean"]
    np.testing.assert_allclose(written, model.predict(frame[NAMES]), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mistakes_with_s3(s3):
    with pytest.raises(TableError, match=rf"^There is no file s3://{BUCKET}/other.parquet\.$"):
        open_source(f"s3://{BUCKET}/other.parquet{s3}", target="y")
    with pytest.raises(TableError, match=r"^There is no bucket 'elsewhere'"):
        open_source(f"s3://elsewhere/t.parquet{s3}", target="y")
    host = re.search(r"endpoint_override=([\d.:]+)", s3)[1]
    kind = {"Content-Type": "text/plain"}
    reset = urllib.request.Request(f"http://{host}/moto-api/reset-auth", b"0", kind)
    urllib.request.urlopen(reset).close()  # from now on, only known keys are let in
    with pytest.raises(TableError, match=r"credentials, or with none\. .* AWS_ACCESS_KEY_ID"):
        open_source(f"s3://{BUCKET}/t.parquet{s3}", target="y")


def kinds_of_batches(frame):
    whole = pa.Table.from_pandas(frame)
    batches = whole.to_batches(max_chunksize=64)
    return {
        "table": whole,
        "pandas": frame.set_axis(frame.index[::-1]),
        "list": batches,
        "iterator": iter(batches),
        "generator": (batch for batch in batches),
        "reader": whole.to_reader(max_chunksize=7),
        "tables": iter([whole[:10], whole[10:]]),
    }


def test_batches_hold_the_same_rows(frame):
    for name, batches in kinds_of_batches(frame).items():
        source = open_source(batches, target="y")
        assert list(source.feature_names) == NAMES
        np.testing.assert_array_equal(rows_of(source), frame, err_msg=name)
        if name in ("table", "pandas", "list"):
            np.testing.assert_array_equal(rows_of(source), frame, err_msg=name)
        else:
            with pytest.raises(TableError, match=r"can be read once"):
                next(source.blocks())


def test_categories_are_what_they_stand_for(frame):
    """Whatever numbers each batch has for them."""
    parts = [["a", "b"], ["c", "a"]]
    batches = [
        pa.record_batch({"x": [1.0, 2.0], "y": pa.array(labels).dictionary_encode()})
        for labels in parts
    ]
    assert list(open_source(batches, target="y").gathered().targets) == ["a", "b", "c", "a"]


def test_blocks_of_batches_are_neither_small_nor_large(frame):
    whole = pa.Table.from_pandas(frame)
    for batches in (whole, whole.to_batches(max_chunksize=7)):
        source = open_source(batches, target="y", columns=["x0"], weight="x1")
        sizes = [len(part) for part in source.frames(rows=64)]
        assert sizes == [64, 64, 64, 64, 44]
        assert set(next(source.frames()).columns) == {"x0", "x1", "y"}


def test_an_iterator_is_read_by_one_fit(frame, model):
    batches = iter(pa.Table.from_pandas(frame).to_batches(max_chunksize=64))
    source = open_source(batches, target="y")
    again = DVIPRegressor.paper(**SETTINGS).fit(source)
    np.testing.assert_array_equal(again.predict(frame[NAMES]), model.predict(frame[NAMES]))
    with pytest.raises(TableError, match=r"were read before, .* open a new one"):
        DVIPRegressor.paper(**SETTINGS).fit(source)


def test_mistakes_with_batches(frame):
    whole = pa.Table.from_pandas(frame)
    used = iter(whole.to_batches())
    list(used)
    with pytest.raises(TableError, match=r"There are no batches: .* was read before"):
        open_source(used, target="y")
    with pytest.raises(TableError, match=r"has no column 'z'"):
        open_source(whole, target="z")
    other = [whole[:9], whole[9:].rename_columns(["x0", "x1", "other", "y"])]
    with pytest.raises(
        TableError, match=r"Batch 2 has the columns x0, x1, other, y, but the first"
    ):
        list(open_source(other, target="y").blocks())
    text = whole.set_column(0, "x0", pa.array(map(str, frame["x0"])))
    with pytest.raises(TableError, match=r"'x0' of batch 2 is string, but double in the first"):
        list(open_source([whole, text], target="y").blocks())
    with pytest.raises(TableError, match=r"Batch 1 is a dict: expected Arrow record batches"):
        open_source([{"x0": 1.0}], target="y")
    with pytest.raises(ValueError, match=r"^open_source takes no int: give the path of a file"):
        open_source(7, target="y")
    with pytest.raises(TableError, match=r"no rows"):
        list(open_source(whole[:0], target="y").blocks())

    def broken():
        yield whole[:9].to_batches()[0]
        raise OSError("the connection was lost")

    with pytest.raises(TableError, match=r"not be read to the end: the connection was lost"):
        list(open_source(broken(), target="y").blocks())
    gap = frame.assign(x2=frame["x2"].where(frame.index != 5))
    with pytest.raises(ValueError, match=r"Column 'x2' has a gap in row 6 of the batches"):
        DVIPRegressor.paper(**SETTINGS).fit(open_source(gap, target="y"))


def test_polars(frame):
    polars = pytest.importorskip("polars", reason="needs pip install polars")
    kinds = polars.from_pandas(frame).with_columns(polars.lit("kind").alias("label"))
    np.testing.assert_array_equal(rows_of(open_source(kinds, "y", columns=NAMES)), frame)
    labels = open_source(kinds, target="label", columns=NAMES).gathered().targets
    assert set(labels) == {"kind"}
    slices = kinds.iter_slices(100)
    np.testing.assert_array_equal(rows_of(open_source(slices, "y", columns=NAMES)), frame)


def test_duckdb(frame):
    duckdb = pytest.importorskip("duckdb", reason="needs pip install duckdb")
    with duckdb.connect() as database:
        database.register("rows", frame)
        query = "SELECT x0, x1, x2::DECIMAL(18, 12) AS x2, y FROM rows"
        expected = database.sql(query).df().astype(float)
        relation = open_source(database.sql(query), target="y")
        for _ in range(2):
            np.testing.assert_allclose(rows_of(relation), expected, rtol=1e-14)
        result = database.sql(query)
        fetch = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch
        reader = fetch(64)
        np.testing.assert_allclose(rows_of(open_source(reader, "y")), expected, rtol=1e-14)
