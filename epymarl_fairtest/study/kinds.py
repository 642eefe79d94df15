"""The studies there are: what each varies, and what its tables compare with. Knows neither teams nor methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """A research question: its variants with the settings they change, and the one the others are compared with."""

    title: str
    varies: str
    reference: str
    variants: Mapping[str, Mapping[str, Any]]
    labels: Mapping[str, str]


def _kinds() -> dict[str, Kind]:
    ratios = {f"{ratio:.2f}": {"select_ratio": ratio} for ratio in (0.05, 0.10, 0.15, 0.20)}
    # The paper compares the fitness functions in the plain search, without prioritisation.
    alone: dict[str, dict[str, Any]] = {name: {"fitness": [name], "prioritise": False} for name in ("f1", "f2", "f3")}
    fitness = {
        "f0": {"fitness": [], "prioritise": False},
        **alone,
        "all": {"fitness": ["f1", "f2", "f3"], "prioritise": False},
    }
    return {
        "rq1": Kind("RQ1: the methods", "methods", "fairtest", {}, {}),
        "rq2": Kind(
            "RQ2: the select ratio", "select ratios", "0.20", ratios, {name: f"{float(name):.0%}" for name in ratios}
        ),
        "rq3a": Kind(
            "RQ3-a: the predictor's fairness features", "predictor's features", "predictor", {"predictor": {}}, {}
        ),
        "rq3b": Kind(
            "RQ3-b: the fitness functions", "fitness functions", "all", fitness,
            {n: f"{n} only" for n in alone} | {"all": "f1+f2+f3"},
        ),
        "rq3c": Kind(
            "RQ3-c: the prioritisation", "prioritisation", "on",
            {"off": {"prioritise": False}, "on": {"prioritise": True}},
            {"off": "Without prioritisation", "on": "With prioritisation"},
        ),
    }  # fmt: skip


KINDS = _kinds()
