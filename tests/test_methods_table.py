"""The table of methods in docs/runs.md says what the registered strategies say about themselves."""

from __future__ import annotations

import re
from pathlib import Path

from epymarl_fairtest.strategies import STRATEGIES

RUNS = Path(__file__).resolve().parent.parent / "docs" / "runs.md"


def test_the_table_has_every_method_in_its_own_words() -> None:
    section = RUNS.read_text(encoding="utf-8").split("\n## Methods\n")[1].split("\n## ")[0]
    _, *rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)  # without the header
    assert len(rows) == len(dict(rows))
    assert dict(rows) == {strategy.name: strategy.doc for strategy in STRATEGIES.own()}
