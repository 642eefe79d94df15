"""Where a run's failures come from: its executions by purpose and operator, and how unfair its populations were.

python tools/origins.py RUN

Prints for each purpose and operator how many executions there were and how many were unfair; for the method `fairtest`
also how many of each round's candidates were unfair, of those that the pre-filter lets through (the most undecided,
five times as many as are wanted) and of its first population; and how often the mutants of unfair and of other parents
were.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from epymarl_fairtest.core.episodes import OPERATORS
from epymarl_fairtest.store.finished import FinishedRun, read_run
from epymarl_fairtest.strategies.fairtest.plan import POOL_PER_OFFSPRING


def line(name: str, unfair: np.ndarray) -> str:
    return f"{name:<32}{len(unfair):8,}{unfair.sum():8,}{unfair.mean() if len(unfair) else 0:9.1%}"


def origins(run: FinishedRun) -> list[str]:
    found, unfair = run.executions, run.unfair()

    def unfair_of(ids: np.ndarray) -> np.ndarray:
        return unfair[np.searchsorted(found["id"], ids)]  # ids ascend

    told = [f"{'':<32}{'judged':>8}{'unfair':>8}{'share':>9}"]
    for purpose in np.unique(found["purpose"]):
        for operator in np.unique(found["operator"]):
            rows = (found["purpose"] == purpose) & (found["operator"] == operator)
            if rows.any():
                name = operator if isinstance(operator, str) else OPERATORS[int(operator)]
                told.append(line(f"{purpose}, {name}", unfair[rows]))
    for number in run.rounds:
        candidates, population = (
            unfair_of(run.evidence[f"round_{number}_{who}_id"]) for who in ("candidates", "population")
        )
        undecided = np.argsort(run.evidence[f"round_{number}_candidates_scores"][:, 1], kind="stable")  # f3
        passed = candidates[undecided[: POOL_PER_OFFSPRING * len(population)]]
        for name, some in (("candidates", candidates), ("pre-filter", passed), ("population", population)):
            told.append(line(f"round {number} {name}", some))
    mutants = np.flatnonzero(found["purpose"] == "mutant")
    parents = unfair_of(found["parent"][mutants])
    if len(mutants):
        told.append(line("mutants of unfair parents", unfair[mutants[parents]]))
        told.append(line("mutants of others", unfair[mutants[~parents]]))
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN")
    print("\n".join(origins(read_run(parser.parse_args().run, "executions.npz", "evidence.npz"))))


if __name__ == "__main__":
    main()
