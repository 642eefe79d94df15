"""The saved teams of one training, whoever saved them: a host's models, a run with its kept teams, or any folder of
folders that are named by their steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.curve.keep import saved_steps
from epymarl_fairtest.curve.series import FILE, FOLDER
from epymarl_fairtest.team.checkpoint import PolicyRecord, load_record
from epymarl_fairtest.team.sacred import configs_of, record_of_config

WEIGHTS = "agent.th"


@dataclass(frozen=True)
class Checkpoint:
    """A saved team; whether its files can be read is seen when it plays."""

    step: int
    folder: Path
    record: PolicyRecord


def curve_file(place: Path) -> Path | None:
    """The curve that was drawn while this training ran."""
    places = (place / FOLDER / FILE, place / FILE, place / "policy" / FILE)
    return next((path for path in places if path.is_file()), None)


def checkpoints_of(place: Path, described: Path | None, warn: Callable[[str], None]) -> list[Checkpoint]:
    """All saved teams of `place` in the order of training. A folder that cannot be one is named and left out."""
    if not place.is_dir():
        raise FairTestError(f"There is no folder {str(place)!r}. Give a run, or the models that a host saved.")
    folder = place / FOLDER if (place / FOLDER).is_dir() else place
    steps = {step: folder / str(step) for step in saved_steps(folder)}
    final = place / "policy"
    if (final / "policy.yaml").is_file():
        steps[load_record(final).training_steps] = final
    if not steps:
        raise FairTestError(
            f"{str(place)!r} holds no saved teams: folders named by their training steps, as the host's save_model=True"
            " makes them, or a run whose training kept some (curve_keep)."
        )
    own = any((path / "policy.yaml").is_file() for path in steps.values())
    checkpoints = []
    common: PolicyRecord | None = None
    for step, path in sorted(steps.items()):
        if not (path / WEIGHTS).is_file():
            warn(f"{str(path)!r} holds no {WEIGHTS}; it is left out.")
            continue
        try:
            if (path / "policy.yaml").is_file():
                record = load_record(path)
            else:
                common = common or _common_record(folder, described)
                record = common
        except FairTestError as error:
            if not own:
                raise
            warn(f"{str(path)!r} is left out: {error}")
            continue
        checkpoints.append(Checkpoint(step, path, replace(record, training_steps=step)))
    return _of_one_training(checkpoints, warn)


def _of_one_training(checkpoints: list[Checkpoint], warn: Callable[[str], None]) -> list[Checkpoint]:
    """Without teams of other environments than most of them have."""
    environments = [repr((one.record.key, one.record.env_args, one.record.time_limit)) for one in checkpoints]
    if len(set(environments)) < 2:
        return checkpoints
    usual = Counter(environments).most_common(1)[0][0]
    for one, environment in zip(checkpoints, environments, strict=True):
        if environment != usual:
            warn(f"{str(one.folder)!r} is left out: it plays {environment}, and the other teams {usual}.")
    return [one for one, environment in zip(checkpoints, environments, strict=True) if environment == usual]


def _common_record(models: Path, described: Path | None) -> PolicyRecord:
    """What describes teams that were saved without FairTest: given, beside them, or in the training's sacred run."""
    if described is not None:
        return _record_in(described)
    if (models / "policy.yaml").is_file():
        return load_record(models)
    configs = configs_of(models)
    records = {repr(record): record for record in map(record_of_config, configs)}
    if len(records) == 1:
        return next(iter(records.values()))
    what = (
        f"fits several trainings: {', '.join(repr(str(path)) for path in configs)}"
        if records
        else "is not described: no policy.yaml is beside the teams, and no sacred run of this training was found"
    )
    raise FairTestError(
        f"What the teams in {str(models)!r} are {what}. Name it with --config, the config.json of the training's sacred"
        " run, or a policy.yaml."
    )


def _record_in(path: Path) -> PolicyRecord:
    if path.is_dir():
        inside = next((path / name for name in ("policy.yaml", "config.json") if (path / name).is_file()), None)
        if inside is None:
            raise FairTestError(f"{str(path)!r} holds neither policy.yaml nor config.json.")
        path = inside
    if not path.is_file():
        raise FairTestError(f"There is no file {str(path)!r}; --config is a config.json of sacred, or a policy.yaml.")
    return record_of_config(path) if path.suffix == ".json" else load_record(path.parent)
