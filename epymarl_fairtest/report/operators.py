"""How a test was made, as the page shows it: in a sentence, in a line of descent, as a marker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Operator:
    noun: str  # in a line of descent
    caption: str  # below a name; {step} is the first step that was executed
    marker: str  # a shape of report/chart.py
    changes: bool = False  # is an episode changed at that step?

    def caption_at(self, step: int) -> str:
        return self.caption.replace("{step}", str(step))

    def noun_at(self, step: int) -> str:
        return f"{self.noun} at step {step}" if self.changes else self.noun


SHOWN = {
    "seed": Operator("random start", "from a seed", "o"),
    "state": Operator("chosen start", "from a chosen start", "o"),
    "mutation": Operator("mutation", "mutated at step {step}", "s", changes=True),
    "crossover": Operator("splice", "spliced at step {step}", "D", changes=True),
    "action": Operator("forced actions", "with forced actions", "^"),
}


def operator_named(name: str) -> Operator:
    """Of a run folder, which may hold any name."""
    return SHOWN.get(name) or Operator(name, name, "o")
