"""The account of every environment step: by whom, why, and what each accounting charges for it.

*Strict* charges everything that was executed. *Paper* charges what the paper counts towards its
18,000 episodes: it leaves out the candidate pool and the predictor's data, and it charges the
re-execution of the initial population although the states were recorded the first time.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Purpose:
    """Why episodes are executed, and which accountings charge them against the budget."""

    name: str
    doc: str
    strict: bool = False
    paper: bool = False


PURPOSES: dict[str, Purpose] = {}
ACCOUNTINGS = ("strict", "paper")


def purpose(name: str, doc: str, *, strict: bool = False, paper: bool = False) -> str:
    """Make a purpose known; whoever executes episodes for a reason of its own calls this where it is defined."""
    made = Purpose(name, doc, strict, paper)
    if PURPOSES.setdefault(name, made) != made:
        raise ValueError(f"the purpose {name!r} is known already ({PURPOSES[name].doc}); choose another name")
    return name


EXECUTION = purpose("execution", "a test the strategy chose to execute", strict=True, paper=True)
CANDIDATE = purpose("candidate", "candidate pool of a round (the paper does not count it)", strict=True)
RE_EXECUTION = purpose(
    "re-execution", "the initial population again (charged by the paper, never executed twice here)", paper=True
)
MUTANT = purpose("mutant", "mutated offspring", strict=True, paper=True)
SPLICE = purpose("splice", "crossover offspring executed after the search", strict=True)
PREDICTOR = purpose("predictor", "random executions that train the fairness predictor", strict=True)
CALIBRATION = purpose("calibration", "random executions that calibrate theta", strict=True)
PROOF = purpose("proof", "the real environment beside its twin, before the search (not charged)")


def is_charged(name: str, accounting: str) -> bool:
    """Does `strict` or `paper` charge this purpose?"""
    if name not in PURPOSES:
        raise _unknown(name)
    charged: bool = getattr(PURPOSES[name], accounting)
    return charged


def _unknown(name: str) -> ValueError:
    return ValueError(f"unknown purpose {name!r}; one of {', '.join(PURPOSES)}")


@dataclass
class Ledger:
    """Episodes and steps per purpose. Only the campaign writes here."""

    episodes: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)

    def charge(self, purpose: str, episodes: int, steps: int) -> None:
        if purpose not in PURPOSES:
            raise _unknown(purpose)
        self.episodes[purpose] = self.episodes.get(purpose, 0) + episodes
        self.steps[purpose] = self.steps.get(purpose, 0) + steps

    def charged(self, accounting: str) -> int:
        """Episodes charged so far under `strict` or `paper`."""
        return sum(n for purpose, n in self.episodes.items() if is_charged(purpose, accounting))

    @property
    def executed_episodes(self) -> int:
        """What the strategy had executed."""
        return self.charged("strict")

    @property
    def executed_steps(self) -> int:
        return sum(n for purpose, n in self.steps.items() if is_charged(purpose, "strict"))

    def as_dict(self) -> dict[str, dict[str, int]]:
        return {p: {"episodes": self.episodes[p], "steps": self.steps[p]} for p in PURPOSES if p in self.episodes}
