"""What a repair is to do: the team, its run, the arms, and the folder in which the same command goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import cannot_write, json_bytes, write_bytes
from epymarl_fairtest.repair.contract import Starts
from epymarl_fairtest.repair.regressions import STREAMS
from epymarl_fairtest.repair.welfare import Shaping
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.checksum import sealed, unsealed

FILE = "plan.json"
CONTROL, REPAIRED, BEFORE = "control", "repaired", "before"
VALIDATION, FRESH, REPEATED = "validation", "fresh", "repeated"  # sets of starts that every team plays


@dataclass(frozen=True)
class Plan:
    """Everything that decides the result; `asked` is what must not change while a folder is continued."""

    out: Path
    policy: Path  # the team to repair
    run: Path  # the finished run whose failures are to go
    settings: Settings  # of that run, its threshold a number
    seeds: tuple[int, ...]
    steps: int
    shapings: tuple[Shaping, ...]
    starts: Starts
    share: float
    max_loss: float
    executions: int  # fresh ones, to judge by
    validation: int  # others, to choose by
    digest: str  # of the team's weights
    learner: Mapping[str, Any]  # settings of the learner that were given

    def asked(self) -> dict[str, Any]:
        return {
            "team": self.digest,
            "theta": self.settings.theta,
            "index": self.settings.index,
            "seeds": list(self.seeds),
            "steps": self.steps,
            "welfare": self.shapings[0].welfare,
            "weights": [shaping.weight for shaping in self.shapings],
            "share": self.share,
            "executions": self.executions,
            "validation": self.validation,
            "learner": dict(self.learner) or None,
        }

    @property
    def sets(self) -> dict[str, int]:
        """Starts by the name of their set: to choose by, to judge by, and to play several times."""
        return {VALIDATION: self.validation, FRESH: self.executions, REPEATED: max(1, self.executions // STREAMS)}

    def folder(self, seed: int, arm: str) -> Path:
        return self.out / f"seed-{seed}" / arm


def arm_name(shaping: Shaping) -> str:
    return f"weight-{shaping.weight:g}"


def open_folder(plan: Plan) -> None:
    """Make the folder, or continue one that was asked for the same; seeds may be added and taken away."""
    path, asked = plan.out / FILE, plan.asked()
    if path.is_file():
        before = _read(path)
        unlike = [name for name in asked if name != "seeds" and before.get(name) != json.loads(json.dumps(asked[name]))]
        if unlike:
            differences = "; ".join(f"{name} {before.get(name)!r} there, {asked[name]!r} now" for name in unlike)
            raise FairTestError(f"{str(plan.out)!r} holds another repair ({differences}). Choose another --out.")
    try:
        plan.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(plan.out, error) from error
    write_bytes(path, json_bytes(sealed(asked)))


def refuse_strange_folder(out: Path) -> None:
    """Nothing is written into a folder that holds something else."""
    if out.is_file() or out.is_symlink():
        raise FairTestError(f"--out {str(out)!r} is a file or a link; name a folder.")
    if out.is_dir() and any(out.iterdir()) and not (out / FILE).is_file() and not (out / "search").is_dir():
        raise FairTestError(f"--out {str(out)!r} exists and holds no repair. Choose another folder.")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return unsealed(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FairTestError(f"{str(path)!r} is damaged ({error}). Choose another --out.") from error
