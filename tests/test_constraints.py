"""constraints.txt: one version of everything that FairTest needs, for each Python that it supports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
NEEDED = [
    Requirement(text)
    for text in re.findall(r'^ {8}"([^"]+)",', (ROOT / "setup.py").read_text(), re.MULTILINE)
    if re.match(r"[A-Za-z][\w.-]*[<>=]", text)
]


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12"])
def test_every_requirement_has_one_version_and_setup_allows_it(python: str) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert len(NEEDED) > 15
    for needed in NEEDED:
        name = canonicalize_name(needed.name)
        held = [
            pin
            for pin in pins
            if canonicalize_name(pin.name) == name
            and (pin.marker is None or pin.marker.evaluate({"python_version": python}))
        ]
        assert len(held) == 1, f"{needed.name} on Python {python}: {[str(pin) for pin in held]}"
        (chosen,) = held[0].specifier
        if chosen.operator == "==":
            assert needed.specifier.contains(chosen.version), f"{needed} and {held[0]}"
