"""Where a run's failures come from: its executions by purpose and operator, and how unfair its populations were.

python tools/origins.py RUN

Prints for each purpose and operator how many executions there were and how many were unfair; for the method `fairtest`
also how many of each round's candidates and of its first population were unfair; and how often the mutants of unfair
and of other parents were.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from epymarl_fairtest.episode import OPERATORS
from epymarl_fairtest.store.finished import FinishedRun, read_run


def line(name: str, unfair: np.ndarray) -> str:
    return f"{name:<32}{len(unfair):8,}{unfair.sum():8,}{unfair.mean() if len(unfair) else 0:9.1%}"


def origins(run: FinishedRun) -> list[str]:
    found, unfair = run.executions, run.unfair()
    row = {int(number): place for place, number in enumerate(found["id"])}
    told = [f"{'':<32}{'judged':>8}{'unfair':>8}{'share':>9}"]
    for purpose in np.unique(found["purpose"]):
        for operator in np.unique(found["operator"]):
            rows = (found["purpose"] == purpose) & (found["operator"] == operator)
            if rows.any():
                name = operator if isinstance(operator, str) else OPERATORS[int(operator)]
                told.append(line(f"{purpose}, {name}", unfair[rows]))
    for name in sorted(name for name in run.evidence if name.endswith("_id")):
        rows = [row[int(number)] for number in run.evidence[name]]
        told.append(line(name.removesuffix("_id").replace("_", " "), unfair[rows]))
    mutants = np.flatnonzero(found["purpose"] == "mutant")
    parents = np.array([unfair[row[int(number)]] for number in found["parent"][mutants]], bool)
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
