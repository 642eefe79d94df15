"""One point of a curve: what the team, as it is at one step of training, makes of the same random executions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge, Judged
from epymarl_fairtest.core.statistics import Rate, rate_of
from epymarl_fairtest.settings import Settings, is_number, is_whole
from epymarl_fairtest.tasks.contract import Task


@dataclass(frozen=True)
class Point:
    """What was measured at one step of training. Starts are told apart bit by bit, so that points can be compared."""

    step: int  # of training
    executions: int
    unfair: int
    undefined: int  # executions in which nobody received anything
    index: float | None  # mean of the fairness index where it is defined
    team_return: float  # what the judged agents received together, on average
    worst_off: float  # what the agent that received least received, on average
    best_off: float
    received: list[float]  # by each judged agent, on average
    unfair_starts: str  # bits in the order of the executions, as hexadecimal text
    undefined_starts: str

    @property
    def rate(self) -> Rate | None:
        """The natural rate; None where there is none, because nobody received anything in any execution."""
        return rate_of(self.unfair, self.executions) if self.undefined < self.executions else None

    @property
    def undefined_share(self) -> float:
        return self.undefined / self.executions

    def verdicts(self) -> NDArray[np.float64]:
        """By start: 1 unfair, 0 fair, NaN undefined."""
        unfair, undefined = (_bits(text, self.executions) for text in (self.unfair_starts, self.undefined_starts))
        return np.where(undefined, np.nan, unfair.astype(np.float64))

    def numbers(self) -> dict[str, Any]:
        """What is told of it, in a summary and in a host's log; None where it is undefined."""
        rate = self.rate
        return {
            "step": self.step,
            "executions": self.executions,
            "unfair": self.unfair,
            "rate": None if rate is None else rate.estimate,
            "low": None if rate is None else rate.low,
            "high": None if rate is None else rate.high,
            "undefined": self.undefined_share,
            "index": self.index,
            "return": self.team_return,
            "worst_off": self.worst_off,
            "best_off": self.best_off,
        }

    def as_dict(self) -> dict[str, Any]:
        """All that there is, for `read_point`."""
        return asdict(self)


@dataclass(frozen=True)
class Played:
    """What executions came to, row by row; of the episodes themselves nothing is kept."""

    received: NDArray[np.float64]  # (B, N) by each judged agent
    index: NDArray[np.float64]  # (B,) NaN where nobody received anything
    unfair: NDArray[np.bool_]  # (B,)

    @staticmethod
    def of(parts: Iterable[Judged]) -> Played:
        rows = [(part.received, part.index, part.unfair) for part in parts]
        return Played(*(np.concatenate(columns) for columns in zip(*rows, strict=True)))


def point_of(step: int, played: Played) -> Point:
    """The point that these executions are at `step`."""
    received, undefined = played.received, np.isnan(played.index)
    defined = played.index[~undefined]
    return Point(
        step=step,
        executions=len(received),
        unfair=int(played.unfair.sum()),
        undefined=int(undefined.sum()),
        index=float(defined.mean()) if len(defined) else None,
        team_return=float(received.sum(axis=1).mean()),
        worst_off=float(received.min(axis=1).mean()),
        best_off=float(received.max(axis=1).mean()),
        received=received.mean(axis=0).tolist(),
        unfair_starts=_text(played.unfair),
        undefined_starts=_text(undefined),
    )


def read_point(values: Mapping[str, Any]) -> Point:
    """What `as_dict` gave; ValueError if it is anything else."""
    try:
        given: dict[str, Any] = {field.name: values[field.name] for field in fields(Point)}
    except KeyError as error:
        raise ValueError(f"it lacks {error}") from error
    point = Point(**given)
    counts = (point.step, point.executions, point.unfair, point.undefined)
    if not all(is_whole(value) and 0 <= value < 2**63 for value in counts):
        raise ValueError("a count is none")
    if not point.unfair + point.undefined <= point.executions > 0:
        raise ValueError("its counts do not add up")
    amounts = [point.team_return, point.worst_off, point.best_off, *([] if point.index is None else [point.index])]
    if not isinstance(point.received, list) or not all(map(_is_finite, [*amounts, *point.received])):
        raise ValueError("an amount is not a finite number")
    for text, count in ((point.unfair_starts, point.unfair), (point.undefined_starts, point.undefined)):
        if not isinstance(text, str) or _bits(text, point.executions).sum() != count:
            raise ValueError("its starts and its counts differ")
    return point


def curve_judge(settings: Settings, task: Task) -> Judge:
    """By the run's threshold. One that is calibrated after training is not known yet: the task's own stands in."""
    theta = settings.theta
    if theta in (None, "auto"):
        if settings.index != "jfi":
            raise FairTestError(
                f"theta=auto is calibrated when training is over, and the tasks' own thresholds are for jfi, not for"
                f" {settings.index}: give theta a number in (0, 1] to draw the fairness curve."
            )
        theta = task.theta
    assert theta is not None
    return Judge(INDICES[settings.index], float(theta), settings.agents)


def _is_finite(value: Any) -> bool:
    return is_number(value) and abs(value) < 1e300


def _text(flags: NDArray[np.bool_]) -> str:
    return np.packbits(flags).tobytes().hex()


def _bits(text: str, count: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(bytes.fromhex(text), np.uint8)
    if len(packed) != (count + 7) // 8:
        raise ValueError("not a bit for each execution")
    return np.unpackbits(packed, count=count).astype(bool)
