"""The promises of docs/security.md that no other test is about, and that each names its tests."""

import ast
import re
import socket
from pathlib import Path

import pytest
from examples import TINY, regression_data

from dvip import DVIPRegressor, load

ROOT = Path(__file__).parent.parent
# Ways to run what a file or a user's text says.
FORBIDDEN = {"eval", "exec", "compile", "__import__", "pickle", "marshal", "shelve", "dill"}


def names_used(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
        elif isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "shell"):
            assert isinstance(node.value, ast.Constant), path
            assert not node.value.value, path


def test_no_code_is_made_of_data():
    files = sorted((ROOT / "src").rglob("*.py"))
    assert files
    for path in files:
        assert not FORBIDDEN & set(names_used(path)), path


def test_no_network_unless_asked(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the network was asked for")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    inputs, targets = regression_data(40)
    DVIPRegressor.paper(n_layers=1, **TINY).fit(inputs, targets).save(tmp_path / "model")
    load(tmp_path / "model").predict(inputs)


def promised_tests():
    page = (ROOT / "docs" / "security.md").read_text()
    return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)


@pytest.mark.parametrize(("path", "name"), promised_tests())
def test_every_promise_has_a_test(path, name):
    assert f"def {name}(" in (ROOT / path).read_text()


def test_there_are_promises():
    assert len(promised_tests()) > 10
