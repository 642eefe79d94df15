"""The account of every environment step: by whom, why, and what each accounting charges for it.

*Strict* charges everything that was executed. *Paper* charges what the paper counts towards its
18,000 episodes: it leaves out the candidate pool and the predictor's data, and it charges the
re-execution of the initial population although the states were recorded the first time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PURPOSES = {
    "execution": "a test the method chose to execute",
    "candidate": "candidate pool of a round (the paper does not count it)",
    "re-execution": "the initial population again (charged by the paper, never executed twice here)",
    "mutant": "mutated offspring",
    "confirmation": "crossover offspring executed after the search",
    "predictor": "random executions that train the fairness predictor",
    "calibration": "random executions that calibrate theta",
    "proof": "the real environment beside its twin, before the search (charged to nobody)",
    "replay": "failures again in the real environment, after the search (charged to nobody)",
}
CHARGED_STRICT = frozenset(PURPOSES) - {"re-execution", "proof", "replay"}
CHARGED_PAPER = frozenset({"execution", "re-execution", "mutant"})
ACCOUNTINGS = {"strict": CHARGED_STRICT, "paper": CHARGED_PAPER}


@dataclass
class Ledger:
    """Episodes and steps per purpose. Only the campaign writes here."""

    episodes: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)

    def charge(self, purpose: str, episodes: int, steps: int) -> None:
        if purpose not in PURPOSES:
            raise ValueError(f"unknown purpose {purpose!r}; one of {', '.join(PURPOSES)}")
        self.episodes[purpose] = self.episodes.get(purpose, 0) + episodes
        self.steps[purpose] = self.steps.get(purpose, 0) + steps

    def charged(self, accounting: str) -> int:
        """Episodes charged so far under `strict` or `paper`."""
        return sum(n for purpose, n in self.episodes.items() if purpose in ACCOUNTINGS[accounting])

    @property
    def executed_episodes(self) -> int:
        """What the method had executed."""
        return sum(n for purpose, n in self.episodes.items() if purpose in CHARGED_STRICT)

    @property
    def executed_steps(self) -> int:
        return sum(n for purpose, n in self.steps.items() if purpose in CHARGED_STRICT)

    def as_dict(self) -> dict[str, dict[str, int]]:
        return {p: {"episodes": self.episodes[p], "steps": self.steps[p]} for p in PURPOSES if p in self.episodes}
