"""Tables beside pages are of the JAX of the lock, and are read."""

import datetime
import json

import pytest
from records import ROOT, read_table

from book import facts

TABLES = sorted(ROOT.glob("docs/*/data/*.csv"))


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.name)
def test_table_is_of_the_jax_and_libtpu_of_the_lock(file):
    jax = file.stem.partition("-")[2] or facts.locked_version("jax")  # atlas-0.9.2.csv
    for row in read_table(file):
        assert row["jax"] == jax, "measure it again: `nox -s remeasure -- NAME`"
        assert row.get("libtpu", facts.facts().libtpu) == facts.facts().libtpu
        assert datetime.date.fromisoformat(row["date"])


def test_transcripts_are_of_the_jax_of_the_lock():
    data = json.loads((ROOT / "docs/processes/data/launching.json").read_text())
    assert data["versions"]["JAX"] == facts.locked_version("jax")
