"""Estimators are tested with chains that are short."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _short_chains(short_chains):
    return short_chains
