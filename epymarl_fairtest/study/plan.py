"""A study: the same teams under every variant and every seed. Knows the grid, what it may contain, and its folder.

Knows neither backends nor tables.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import write_json
from epymarl_fairtest.core.version import __version__
from epymarl_fairtest.settings import FIELDS, LARGEST, Settings, flat_names, parse_assignment
from epymarl_fairtest.store.read import damaged, read_json
from epymarl_fairtest.strategies import STRATEGIES, configure, strategy_of
from epymarl_fairtest.study.jobs import Job, load_team
from epymarl_fairtest.study.kinds import KINDS
from epymarl_fairtest.team.sample import FILE as SAMPLE

FORMAT = 1
DEFAULTS = {
    "replay": 100,  # per job, out of thousands: every worker also proves its twins
    "workers": 1,  # the jobs themselves run in parallel
    "explain": 0,  # a study counts; whoever wonders why runs `fairtest explain` on a kept run
    "report": False,  # nobody opens hundreds of pages
}


OURS = ("scout", "fairtest")


def labels_of(kind: str, variants: Iterable[str]) -> Mapping[str, str]:
    """What the variants are called in tables and figures."""
    if kind != "rq1":
        return KINDS[kind].labels
    known = [variant for variant in variants if variant.partition(":")[0] in STRATEGIES]
    labels = {variant: _label(*variant.partition(":")[::2]) for variant in known}
    short = {variant: _label(*variant.partition(":")[::2], said=_in_words) for variant in known}
    alike = Counter(short.values())
    return {variant: short[variant] if alike[short[variant]] == 1 else labels[variant] for variant in known}


def in_front(kind: str, variants: Iterable[str]) -> list[str]:
    """The variants that the study is about, where it compares methods: our searches under any options."""
    return [variant for variant in variants if kind == "rq1" and variant.partition(":")[0] in OURS]


def _label(method: str, options: str, said: Callable[[str], str] = str) -> str:
    label = STRATEGIES[method].label
    return f"{label} ({', '.join(map(said, options.split(',')))})" if options else label


def _in_words(option: str) -> str:
    """NAME=VALUE as short as it can be said: a word speaks for itself, a number does not."""
    name, _, value = option.partition("=")
    name = name.replace("_", " ")
    if value.lower() in ("true", "false"):
        return name if value.lower() == "true" else f"no {name}"
    return value if value[:1].isalpha() else f"{name} {value}"


@dataclass(frozen=True)
class Entry:
    """A policy folder, and what makes it the team it is."""

    folder: Path
    task: str
    algorithm: str
    identity: Mapping[str, Any]  # weights, environment, allocation, training pool
    reading: str = "q"  # of its scores


@dataclass(frozen=True)
class Study:
    """The whole grid, checked."""

    kind: str
    root: Path
    teams: Mapping[str, Entry]
    variants: Mapping[str, Mapping[str, Any]]
    seeds: Sequence[int]
    given: Mapping[str, Any]
    command: str
    keep_failures: bool = False

    def settings(self, team: str, variant: str) -> Settings:
        values = {"allocation": self.teams[team].identity["allocation"], **self.given, **self.variants[variant]}
        if self.kind == "rq1":
            own = self.variants[variant].get("options", {})
            values["options"] = _options(self.given.get("options", {}), values["method"]) | own
        return configure(values, **DEFAULTS).played_by(self.teams[team].reading)

    def jobs(self) -> list[Job]:
        """Seed by seed, so that an unfinished study already has something of everything."""
        chosen = {(name, variant): self.settings(name, variant) for name in self.teams for variant in self.variants}
        return [
            Job(
                study=self.kind,
                root=self.root,
                policy=team.folder,
                team=name,
                variant=variant,
                seed=seed,
                settings=replace(chosen[name, variant], seed=seed).as_dict(),
                digest=team.identity["policy_digest"],
                command=self.command,
                keep_failures=self.keep_failures,
            )
            for seed in self.seeds
            for name, team in self.teams.items()
            for variant in self.variants
        ]

    @cached_property
    def common(self) -> Settings:
        """What all jobs share, apart from variants, allocation and seed."""
        return self._chosen()

    def _chosen(self, **changes: Any) -> Settings:
        given = {name: value for name, value in self.given.items() if name != "options"}
        return configure({**given, **changes}, **DEFAULTS)

    def _flat_options(self) -> dict[str, Any]:
        """Options of the methods that are given like any setting, e.g. the pool of the search."""
        values: dict[str, Any] = {}
        for method in {changes["method"] for changes in self.variants.values()}:
            chosen = self._chosen(method=method)
            values |= {name: chosen.options[name] for name in flat_names(strategy_of(chosen).options)}
        return values

    def record(self) -> dict[str, Any]:
        """study.json."""
        varied = {name for changes in self.variants.values() for name in changes}
        aside = {*varied, "allocation", "options", "seed", "out", "progress", "workers"}
        values = self.common.as_dict() | dict(sorted(self._flat_options().items()))
        common = {name: value for name, value in values.items() if name not in aside}
        return {
            "format": FORMAT,
            "fairtest": __version__,
            "study": self.kind,
            "settings": common | {"options": dict(self.given.get("options", {}))},
            "policies": {name: dict(team.identity) for name, team in self.teams.items()},
            "variants": list(self.variants),
            "seeds": list(self.seeds),
            "command": self.command,
        }


def _options(given: Mapping[str, Any], method: str) -> dict[str, Any]:
    """The options of one method out of METHOD.NAME=VALUE."""
    split = {name: name.partition(".") for name in given}
    return {split[name][2]: value for name, value in given.items() if split[name][0] == method and split[name][2]}


# --- planning: everything that can be refused is refused here -----------------------------------------


def plan_study(
    kind: str,
    policies: Sequence[Path],
    seeds: Sequence[int],
    given: Mapping[str, Any],
    *,
    root: Path,
    command: str,
    methods: Sequence[str] | None = None,
    keep_failures: bool = False,
) -> Study:
    """The study, if every team can be loaded and every variant can be run on every team."""
    _refuse_repeated("--seeds", seeds)
    if max(seeds) >= LARGEST:
        raise FairTestError(f"--seeds {max(seeds)} is not allowed; a seed is a whole number below 2^63.")
    variants = _variants(kind, methods)
    varied = {name for changes in variants.values() for name in changes if name != "options"} | {"method"}
    for name in given:
        if name in varied or name in ("seed", "out"):
            remedy = {"seed": "use --seeds", "out": "use --out", "method": "use --methods (rq1)"}
            raise FairTestError(f"--set {name}: {kind} sets it itself; {remedy.get(name, 'leave it out')}.")
    if kind == "rq1":
        compared = dict.fromkeys(changes["method"] for changes in variants.values())
        for name in given.get("options", {}):
            if name.partition(".")[0] not in compared or "." not in name:
                raise FairTestError(
                    f"--set options.{name}: a study of several methods needs to know whose option it is; write"
                    f" options.METHOD.NAME=VALUE with one of the methods {', '.join(compared)}."
                )
    elif methods is not None:
        raise FairTestError(f"--methods is for rq1; {kind} compares {', '.join(variants)}.")
    teams = {name: _team(folder, given) for name, folder in _names(policies).items()}
    for first, second in combinations(teams.values(), 2):
        if first.identity == second.identity:
            raise FairTestError(
                f"--policies: {str(first.folder)!r} and {str(second.folder)!r} hold the same team; leave one out."
            )
    study = Study(kind, root.resolve(), teams, variants, list(seeds), dict(given), command, keep_failures)
    _check_jobs(study)
    return study


def _variants(kind: str, methods: Sequence[str] | None) -> dict[str, Mapping[str, Any]]:
    if kind != "rq1":
        return {name: {"method": "fairtest", **changes} for name, changes in KINDS[kind].variants.items()}
    chosen = list(STRATEGIES) if methods is None else list(methods)
    _refuse_repeated("--methods", chosen)
    variants = {variant: method_variant(variant) for variant in chosen}
    order = {name: number for number, name in enumerate(STRATEGIES)}
    return dict(sorted(variants.items(), key=lambda variant: order[variant[1]["method"]]))


def method_variant(variant: str) -> Mapping[str, Any]:
    """A method, or one with options of its own: METHOD:NAME=VALUE,NAME=VALUE."""
    method, colon, texts = variant.partition(":")
    STRATEGIES.named(method, f"--methods {variant}")
    if not colon:
        return {"method": method}
    if not re.fullmatch(r"\w+=[\w.+-]+(,\w+=[\w.+-]+)*", texts):  # it is also the name of a folder
        raise FairTestError(
            f"--methods {variant} is not a method with options; write METHOD:NAME=VALUE, or"
            " METHOD:NAME=VALUE,NAME=VALUE for several, with plain words or numbers as values."
        )
    return {"method": method, "options": dict(parse_assignment(text) for text in texts.split(","))}


def _refuse_repeated(option: str, values: Sequence[Any]) -> None:
    repeated = next((value for value, count in Counter(values).items() if count > 1), None)
    if repeated is not None:
        raise FairTestError(f"{option}: {repeated} is given twice; once is enough.")
    if not values:
        raise FairTestError(f"{option}: nothing is given; a study needs at least one.")


def _names(policies: Sequence[Path]) -> dict[str, Path]:
    """A short name for each folder: its own, with as many of its parents as it takes to be unique.

    FairTest saves teams to RUN/policy or N/fairtest/policy, which say nothing: such a folder is named after RUN, or
    after N, the number of a sacred run, and the folder around it.
    """
    folders = [Path(os.path.abspath(folder)) for folder in policies]
    _refuse_repeated("--policies", [str(folder.resolve()) for folder in folders])

    def name(folder: Path, length: int) -> str:
        parts = list(folder.parts[1:])
        while len(parts) > 1 and parts[-1] in ("policy", "fairtest"):
            parts.pop()
        length += bool(parts) and parts[-1].isdigit()
        return re.sub(r"[^\w.+=-]+", "_", "-".join(parts[-length:])) or "team"

    length, longest = 1, max(len(folder.parts) for folder in folders)
    while len({name(folder, length) for folder in folders}) < len(folders) and length < longest:
        length += 1
    names = [name(folder, length) for folder in folders]
    _refuse_repeated("--policies (as names)", names)
    return dict(zip(names, folders, strict=True))


def _team(folder: Path, given: Mapping[str, Any]) -> Entry:
    from epymarl_fairtest.team.checkpoint import load_record

    record = load_record(folder)
    allocation = given.get("allocation", record.allocation)
    team = load_team(folder, allocation)
    described = {name: getattr(record, name) for name in ("key", "env_args", "time_limit", "algorithm")}
    sample = hashlib.sha256((folder / SAMPLE).read_bytes()).hexdigest() if (folder / SAMPLE).is_file() else None
    trained = {"policy_digest": team.origin["policy_digest"], "training_pool": sample}
    identity = json.loads(json.dumps({"task": team.task.name, "allocation": allocation, **described, **trained}))
    return Entry(folder, team.task.name, record.algorithm, identity, team.policy.reading)


def _check_jobs(study: Study) -> None:
    """Refuse, before anything is run, a variant that cannot be run on some team."""
    if study.kind == "rq3a":
        if study.common.theta == "auto":
            raise FairTestError("theta=auto is for runs; find the number with fairtest calibrate and give it here.")
        return
    refused: dict[str, FairTestError] = {}
    for name, team in study.teams.items():
        for variant in study.variants:
            chosen = study.settings(name, variant)
            try:
                strategy_of(chosen).check_settings(chosen, load_team(team.folder, chosen.allocation).task)
            except FairTestError as error:
                refused.setdefault(variant, error)
    if not refused:
        return
    remedy, fit = "", [variant for variant in study.variants if variant not in refused]
    if study.kind == "rq1" and fit:
        remedy = f" These methods can be run on all teams: --methods {' '.join(fit)}"
    raise FairTestError(f"{next(iter(refused.values()))}{remedy}")


# --- the folder of a study ----------------------------------------------------------------------------


def open_folder(study: Study) -> None:
    """Write study.json, or continue the study that it describes: it may have grown, nothing else may differ."""
    path, record = study.root / "study.json", study.record()
    if path.is_file():
        differences = _differences(read_study(study.root), record)
        if differences:
            raise FairTestError(
                f"{str(study.root)!r} holds a study with other settings: {'; '.join(differences)}. Give the command"
                " that made it (policies, methods and seeds may be added), or choose another folder (--out)."
            )
    elif study.root.exists() and (not study.root.is_dir() or any(study.root.iterdir())):
        raise FairTestError(f"{str(study.root)!r} exists and is not a study. Choose another folder (--out).")
    try:
        study.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FairTestError(f"The folder {str(study.root)!r} cannot be created: {error.strerror}.") from error
    write_json(path, record)


def read_study(root: Path) -> dict[str, Any]:
    """study.json, checked."""
    record = read_json(root / "study.json")
    if not isinstance(record.get("policies"), dict) or not all(
        isinstance(record.get(axis), list) for axis in ("variants", "seeds")
    ):
        raise damaged(root / "study.json", "it does not list policies, variants and seeds")
    return record


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """How the study on disk differs from this one, in words."""
    removed = []
    for axis in ("policies", "variants", "seeds"):
        lost = [str(value) for value in there[axis] if value not in here[axis]]
        if lost:
            removed.append(f"{axis}: {', '.join(lost)} there, not here")
    here = json.loads(json.dumps(here))
    policies = there["policies"]
    both = [name for name in policies if name in here["policies"]]
    whole = ("format", "fairtest", "study", "settings")
    left = {name: there.get(name) for name in whole} | {"policies": {name: policies[name] for name in both}}
    right = {name: here[name] for name in whole} | {"policies": {name: here["policies"][name] for name in both}}
    if isinstance(left["settings"], dict):  # an added method brings its options along
        for name in (left["settings"].keys() ^ right["settings"].keys()) - FIELDS.keys():
            left["settings"].pop(name, None)
            right["settings"].pop(name, None)
    return [*removed, *differences_of(left, right)]


def differences_of(there: Any, here: Any, name: str = "") -> Iterator[str]:
    """Where two sets of names and values differ, in the user's words."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted({*there, *here}):
            yield from differences_of(there.get(key), here.get(key), f"{name}.{key}" if name else key)
    elif there != here:
        yield f"{name}: {there!r} there, {here!r} here"
