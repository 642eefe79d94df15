"""Why failures happened, for the page: the section, what a player's card says, and the other course beside the failure.

Plain data from explain.json and explain.npz; knows neither HTML nor how anything was found out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.explain import words
from epymarl_fairtest.core.episodes import Episodes, operator_code
from epymarl_fairtest.core.numbers import percent
from epymarl_fairtest.report.choices import choices_of
from epymarl_fairtest.report.scenes import Scene, scene_of
from epymarl_fairtest.store.explanation import read_courses
from epymarl_fairtest.store.finished import FinishedRun
from epymarl_fairtest.tasks.contract import Task

MOST_DECISIONS = 12  # of the section's table
MOST_SMALL = 4  # smallest examples to watch
Data = dict[str, Any]
KINDS = {"start": "of the start", "course": "of what happened"}
GREEDY_WORDS = "without exploration"


@dataclass(frozen=True)
class Course:
    """Another episode than the failure itself, and what its agents thought of their actions."""

    scene: Scene
    choices: Data | None

    @staticmethod
    def of(record: FinishedRun, task: Task, courses: Mapping[str, NDArray[Any]], row: int) -> Course:
        """`courses` as explain.npz holds them."""
        episode = _episode(courses, row)
        index = str(record.summary.get("index", "jfi"))
        scene = scene_of(task, episode, 0, index, record.theta, record.agents)
        return Course(scene, choices_of(task, episode.q[0, : scene.steps], scene.actions))

    def as_json(self) -> Data:
        told = {"changed": False, "happened": "", "worse": self.scene.worse.tolist(), "choices": self.choices}
        return self.scene.as_json() | told


@dataclass(frozen=True)
class Why:
    """What is known about one failure, and its other course where there is a better one."""

    entry: Mapping[str, Any]
    instead: Course | None

    @property
    def decision(self) -> Mapping[str, Any] | None:
        return self.entry["decisions"][0] if self.entry["decisions"] else None

    @property
    def change(self) -> str:
        """What is different in the other course."""
        one = self.decision
        if one is None:
            return GREEDY_WORDS
        return f"step {one['step']}, agent {one['agent']}: {one['action']} instead of {one['instead_of']}"

    def card(self) -> Data:
        sentences = [words.settled_sentence(self.entry), words.responsible_sentence(self.entry)]
        return {
            "cause": self.entry["cause"],
            "meaning": words.cause_sentence(self.entry).partition(": ")[2],
            "decisions": [words.decision_sentence(one) for one in self.entry["decisions"]],
            "scores": self.scores(),
            "text": [sentence[:1].upper() + sentence[1:] for sentence in sentences if sentence],
            "instead": None if self.instead is None else self._instead(self.instead.scene),
        }

    def _instead(self, scene: Scene) -> str:
        change = "With the other decision" if self.decision else "Without exploration"
        return f"{change} · {scene.verdict}, index {scene.index:.3f}"

    def scores(self) -> str:
        """What the deciding agent thought of its actions at that step."""
        one = self.decision
        if one is None:
            return ""
        values = [f"{n}: {score:.3g}" for n, score in enumerate(one["scores"]) if score is not None]
        values[one["action_number"]] += f" ({one['action']})"
        values[one["instead_of_number"]] += f" ({one['instead_of']}, taken)"
        return f"Agent {one['agent']}'s scores at step {one['step']}: {', '.join(values)}."

    def as_json(self) -> Data:
        """What the player marks and draws."""
        entry, one = self.entry, self.decision
        marks = [
            {"step": entry["gap_opens_at"], "kind": "gap", "words": "the gap opens"},
            {"step": entry["committed_at"], "kind": "settled", "words": "settled from here on"},
        ]
        if one is not None:
            marks.append({"step": one["step"], "kind": "decision", "words": self.change.partition(", ")[2]})
        deciding = None if one is None else {"step": one["step"], "agent": one["agent"] - 1}
        instead = None if self.instead is None else self.instead.as_json() | {"decision": deciding}
        return {"marks": marks, "course": entry["course"], "decision": deciding, "instead": instead}


def whys_of(record: FinishedRun, task: Task) -> dict[int, Why]:
    """By the id of the failure."""
    if record.explanation is None:
        return {}
    courses = read_courses(record.path, "what_if")
    rows = {int(number): row for row, number in enumerate(courses.get("id", ()))}
    return {
        entry["id"]: Why(
            entry,
            Course.of(record, task, courses, rows[entry["id"]]) if entry["id"] in rows else None,
        )
        for entry in record.explanation["failures"]
    }


@dataclass(frozen=True)
class Small:
    """A smallest example, and the nearest start that is fair."""

    entry: Mapping[str, Any]
    course: Course
    instead: Course | None

    @property
    def scene(self) -> Scene:
        return self.course.scene

    def card(self) -> Data:
        small = self.entry["smallest"]
        near = small["nearest_fair"]
        text = [f"Made from {small['origin']}" + (f": {', '.join(small['edits'])}." if small["edits"] else ".")]
        beside = None
        if near and self.instead is not None:
            beside = f"The nearest fair start · {near['distance']:.2f} away, unfair in {percent(near['p_unfair'])}"
        how = "without exploration" if small["greedy"] else "with one exploration stream"
        real = "the real environment agrees" if small["confirmed"] else "the real environment does not agree"
        return {
            "cause": "smallest",
            "meaning": f"unfair in {percent(small['p_unfair'])} of fresh executions; drawn {how}; {real}",
            "decisions": [],
            "scores": "",
            "text": text,
            "instead": beside,
        }

    def as_json(self) -> Data:
        return {"instead": None if self.instead is None else self.instead.as_json()}


def smalls_of(record: FinishedRun, task: Task) -> list[Small]:
    """Those with a fair neighbour first."""
    if record.explanation is None:
        return []
    courses = read_courses(record.path, "smallest")
    rows = {
        (int(n), str(k)): row
        for row, (n, k) in enumerate(zip(courses.get("id", ()), courses.get("kind", ()), strict=True))
    }

    def course(number: int, kind: str) -> Course | None:
        row = rows.get((number, kind))
        return None if row is None else Course.of(record, task, courses, row)

    found = [(entry, course(entry["id"], "smallest")) for entry in record.explanation["failures"] if entry["smallest"]]
    small = [Small(entry, one, course(entry["id"], "fair")) for entry, one in found if one is not None]
    return sorted(small, key=lambda one: one.instead is None)[:MOST_SMALL]


def _episode(courses: Mapping[str, NDArray[Any]], row: int) -> Episodes:
    """One other course as an episode: what happened before its step is the failure's."""
    one = {name: courses[name][row : row + 1] for name in ("states", "actions", "rewards", "length", "id")}
    nothing = np.zeros((*one["actions"].shape, 0), np.float32)
    return Episodes(
        **one,
        obs=nothing,
        q=courses["q"][row : row + 1] if "q" in courses else nothing,
        root_seed=np.zeros(1, np.int64),
        stream=np.zeros(1, np.uint64),
        shift=np.zeros(1, np.int32),
        start_step=np.zeros(1, np.int32),
        operator=np.full(1, operator_code("state"), np.int8),
        parent=np.full(1, -1, np.int64),
    )


def why_section(record: FinishedRun, shown: set[int]) -> Data | str:
    """`shown` are the failures that have a player on the page."""
    explanation = record.explanation
    if explanation is None:
        return "no failure was explained (explain=0, or a study's run): fairtest explain RUN does it"
    if not explanation["explained"]:
        return "there is no failure to explain"
    entries = [entry for entry in explanation["failures"] if entry["decisions"]]
    return {
        "text": introduction(explanation),
        "causes": causes(explanation),
        "settled": settled_words(explanation),
        "responsible": responsible_words(explanation),
        "decisions": [
            {"id": entry["id"], "shown": entry["id"] in shown, "words": words.decision_sentence(entry["decisions"][0])}
            for entry in sorted(entries, key=best_first)[:MOST_DECISIONS]
        ],
        "decided": len(entries),
        "situations": [situation(one) for one in explanation["situations"]],
        "explained": explanation["explained"],
    }


def best_first(entry: Mapping[str, Any]) -> tuple[float, int]:
    best = entry["decisions"][0]
    return best["p_unfair"] - best["p_unfair_before"], entry["id"]


def introduction(explanation: Mapping[str, Any]) -> list[str]:
    return [
        f"{words.failures(explanation['explained'])} were executed again with something changed, one of each different"
        " kind. A cause is what such executions show: noise, where the start is rarely unfair; policy, where a better"
        " choice was found that is fair, helps the worst-off and costs the team at most 2%; start, where none was"
        " found, which does not mean that there is none.",
        *words.notes(explanation),
    ]


def causes(explanation: Mapping[str, Any]) -> list[Data]:
    total = max(explanation["explained"], 1)
    return [
        {"name": name, "count": count, "width": f"{100 * count / total:.2f}", "meaning": words.MEANING[name]}
        for name, count in explanation["causes"].items()
    ]


def settled_words(explanation: Mapping[str, Any]) -> str:
    part = words.part_of(explanation["committed_at_first"], explanation["explained"])
    return f"{part} of them were settled with the first executed step: from there on P(unfair) stayed at or above 0.9."


def responsible_words(explanation: Mapping[str, Any]) -> str:
    named = explanation["responsible"]
    if not named:
        return "In none of them could one agent be named that would have prevented it by itself."
    parts = [f"agent {agent} in {count}" for agent, count in named.items()]
    return f"One agent could have prevented it by itself in {sum(named.values())}: {', '.join(parts)}."


def situation(one: Mapping[str, Any]) -> Data:
    return {
        "rule": one["rule"][:1].upper() + one["rule"][1:],
        "kind": KINDS.get(one["kind"], one["kind"]),
        "precision": "".join(words.precision(one)),
        "base": percent(one["base_rate"]),
        "recall": percent(one["recall"]),
        "size": one["size"],
        "width": f"{100 * one['precision']:.1f}",
        "base_width": f"{100 * one['base_rate']:.1f}",
    }
