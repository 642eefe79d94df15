"""The smallest examples that a run holds, as episodes that begin with them: what `fairtest export` writes of them.

explanation.py says what the files must hold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, operator_code
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.store.explanation import read_courses, read_explanation
from epymarl_fairtest.store.finished import FinishedRun


def smallest_examples(run: FinishedRun, failures: Episodes) -> tuple[Episodes, NDArray[np.float64]] | None:
    """Each on a stream on which it is unfair and with the id of its failure, and their index as they were explained:
    some of them without exploration. None where the run holds none."""
    explanation = read_explanation(run.path) or {"failures": []}
    small = {entry["id"]: entry["smallest"] for entry in explanation["failures"] if entry["smallest"]}
    courses = read_courses(run.path, "smallest") if small else {}
    if not courses:
        return None
    known = np.isin(courses["id"], list(small)) & np.isin(courses["id"], failures.id)
    drawn = np.flatnonzero((courses["kind"] == "smallest") & known)
    ids = courses["id"][drawn]
    place = {int(number): row for row, number in enumerate(failures.id)}
    examples = failures.take(np.array([place[int(number)] for number in ids], np.int64))
    examples.states[:] = 0.0
    examples.states[:, 0] = [small[int(number)]["state"] for number in ids]
    examples.stream = np.array([int(small[int(number)]["stream"]) for number in ids], np.uint64)
    examples.shift, examples.start_step = np.zeros_like(examples.shift), np.zeros_like(examples.start_step)
    examples.operator = np.full_like(examples.operator, operator_code("state"))
    judge = Judge(INDICES[run.settings["index"]], run.theta, run.agents)
    return examples, judge.index(judge.received(courses["rewards"][drawn]))
