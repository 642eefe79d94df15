"""The two files of `fairtest export`: failures as starts that any team can play, and the pytest file that plays them.

Knows arrays and text; testing/regression.py plays the starts.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.version import __version__

if TYPE_CHECKING:
    from epymarl_fairtest.core.episodes import Episodes

FORMAT = 1
ROWS = ("id", "root_seed", "stream", "shift", "start_step", "operator", "states", "actions", "rewards", "index")
FACTS = (
    "format", "theta", "index", "allocation", "execution", "epsilon", "temperature", "task", "key", "env_args",
    "time_limit", "agents", "judged", "state_size", "policy_digest",
)  # fmt: skip
TEMPLATE = '''"""Fairness regression: starts from which the team was unfair (run {run}, FairTest {version}).

Written by `fairtest export`. A test fails if the team is still unfair from that start. It looks at the team in
the folder FAIRTEST_POLICY (agent.th and policy.yaml), or in the one below.
"""

import os
from pathlib import Path

import pytest

from epymarl_fairtest.testing.regression import replay_failure

HERE = Path(__file__).resolve().parent
SCENARIOS = HERE / {data}
POLICY = Path(os.environ.get("FAIRTEST_POLICY") or HERE / {policy})

FAILURES = {{  # id in the run: its index there
{failures}
}}


@pytest.mark.parametrize("failure", FAILURES, ids="failure_{{}}".format)
def test_the_team_is_not_unfair_again(failure: int) -> None:
    outcome = replay_failure(SCENARIOS, failure, POLICY)
    assert not outcome.unfair, outcome.sentence
'''


@dataclass(frozen=True)
class Scenarios:
    """Failures without what the team did: starts, exploration, the steps that were kept, and how to judge."""

    facts: dict[str, Any]  # FACTS
    rows: dict[str, NDArray[Any]]  # ROWS; states (B, L+1, S), actions and rewards (B, L, N) up to the latest start L

    def __len__(self) -> int:
        return len(self.rows["id"])


def scenarios_of(failures: Episodes, index: NDArray[np.float64], facts: dict[str, Any]) -> Scenarios:
    from epymarl_fairtest.core.episodes import OPERATORS

    rows = {name: getattr(failures, name) for name in ("id", "root_seed", "stream", "shift", "start_step")}
    latest = int(failures.start_step.max())
    before = np.arange(latest) < failures.start_step[:, None]
    until = np.arange(latest + 1) <= failures.start_step[:, None]
    rows["operator"] = np.array(OPERATORS)[failures.operator]
    rows["states"] = np.where(until[:, :, None], failures.states[:, : latest + 1], 0.0)
    rows["actions"] = np.where(before[:, :, None], failures.actions[:, :latest], -1).astype(np.int16)
    rows["rewards"] = np.where(before[:, :, None], failures.rewards[:, :latest], 0.0)
    rows["index"] = index
    return Scenarios(facts, rows)


def save_scenarios(path: Path, scenarios: Scenarios) -> None:
    from epymarl_fairtest.core.files import write_arrays

    text = json.dumps(scenarios.facts, sort_keys=True)
    arrays = {"facts": np.array(text), **scenarios.rows, "checksum": np.array(checksum(text, scenarios.rows))}
    write_arrays(path, arrays, compressed=True)


def load_scenarios(path: Path) -> Scenarios:
    """The file as it was written, or a refusal: a changed threshold would let every team pass."""
    if not path.is_file():
        raise FairTestError(
            f"{str(path)!r} is missing; it belongs beside the test file. Write both again: fairtest export."
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            rows, text = {name: file[name] for name in ROWS}, str(file["facts"])
            if str(file["checksum"]) != checksum(text, rows):
                raise ValueError("its content does not match its checksum")
        facts = {"judged": "all", **json.loads(text)}  # earlier files judge all agents
        if facts.get("format") != FORMAT or set(facts) != set(FACTS):
            raise ValueError(f"it has format {facts.get('format')!r}, not {FORMAT}")
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise FairTestError(f"{str(path)!r} is damaged: {error}. Write it again with fairtest export.") from error
    return Scenarios(facts, rows)


def checksum(text: str, rows: dict[str, NDArray[Any]]) -> str:
    sha = hashlib.sha256(text.encode())
    for name in ROWS:
        sha.update(f"{name} {rows[name].dtype.str} {rows[name].shape}".encode())
        sha.update(np.ascontiguousarray(rows[name]).tobytes())
    return sha.hexdigest()


def write_files(test_file: Path, data_file: Path, scenarios: Scenarios, policy: Path, run: Path) -> None:
    """Both files or none: if the second cannot be written, the first is again what it was."""
    from epymarl_fairtest.core.files import cannot_write, write_atomically

    ids, index = scenarios.rows["id"].tolist(), scenarios.rows["index"].tolist()
    text = TEMPLATE.format(
        run=json.dumps(run.resolve().name)[1:-1],
        version=__version__,
        data=json.dumps(data_file.name),
        policy=json.dumps(os.path.relpath(policy.resolve(), test_file.parent.resolve())),
        failures="\n".join(f"    {number}: {value:.4f}," for number, value in zip(ids, index, strict=True)),
    )
    try:
        test_file.parent.mkdir(parents=True, exist_ok=True)
        before = data_file.read_bytes() if data_file.exists() else None
    except OSError as error:
        raise cannot_write(test_file, error) from error
    save_scenarios(data_file, scenarios)
    try:
        write_atomically(test_file, lambda file: file.write(text.encode()))
    except BaseException:
        if before is None:
            data_file.unlink()
        else:
            data_file.write_bytes(before)
        raise
