"""Which teams can be tested where? Trains every algorithm of a host in every environment a little, and tests the team.

    python -m benchmarks.matrix [--host epymarl] [--algorithms mappo qmix] [--environments lbf rware-tiny] [--markdown]

Each pair is trained for a few episodes with FairTest on board, in this process, and tested in a few random executions.
`works`: trained, tested, every failure replayed alike. `refused`: FairTest said before training why not. `host`: the
host cannot train this pair without FairTest either. `FAILED`: everything else, which is a defect. Environments that are
not installed are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from epymarl_fairtest.campaign.run import LIBRARIES
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host import attach
from epymarl_fairtest.host.aside import PluginError
from epymarl_fairtest.host.build import build_training, configuration, load_host
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.store.finished import read_run

EPISODES = 4  # of training
SHORT = {
    "runner": "episode", "batch_size_run": 1, "batch_size": 2, "buffer_size": 2, "t_max": 100, "use_cuda": False,
    "test_nepisode": 1,
}  # fmt: skip
TESTED = {
    "method": "random", "budget": 8, "batch": 8, "replay": 8, "explain": 0, "random_team": 0, "natural_episodes": 0,
    "curve_episodes": 0, "report": False, "progress": False, "engine": "lockstep", "theta": 0.9,
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """An environment as a host is asked for it."""

    key: str = ""
    limit: int = 25
    config: str = "gymma"
    needs: str = ""  # the package it comes from
    more: dict[str, Any] = field(default_factory=dict)  # of env_args


MPE = ("spread-v3", "tag-v3", "reference-v3", "speaker-listener-v4", "adversary-v3", "push-v3", "crypto-v3")
PLACES = {
    "fairtest_mpe": Place(config="fairtest_mpe"),
    "fairtest_pp": Place(config="fairtest_pp"),
    "fairtest_lbf": Place(config="fairtest_lbf"),
    **{f"mpe-{name.rpartition('-')[0]}": Place(f"pz-mpe-simple-{name}", needs="mpe2") for name in MPE},
    "mpe-tag-pretrained": Place("pz-mpe-simple-tag-v3", needs="mpe2", more={"pretrained_wrapper": "PretrainedTag"}),
    "lbf": Place("lbforaging:Foraging-8x8-3p-3f-v3"),
    "lbf-2s": Place("lbforaging:Foraging-2s-8x8-3p-3f-v3"),
    "lbf-coop": Place("lbforaging:Foraging-8x8-2p-2f-coop-v3"),
    "rware-tiny": Place("rware:rware-tiny-2ag-v2", needs="rware"),
    "rware-small": Place("rware:rware-small-4ag-v2", needs="rware"),
    "matrix": Place("matrixgames:penalty-100-nostate-v0", needs="matrixgames"),
    "vmas": Place("vmas-balance", needs="vmas"),
}


def outcome(host: Host, algorithm: str, place: Place, folder: Path) -> tuple[str, str]:
    """One pair: what came of it, and why."""
    try:
        tested(host, algorithm, place, folder)
    except (PluginError, FairTestError) as refusal:
        return "refused", str(refusal)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        try:
            trained(host, algorithm, place)
        except Exception as own:
            return "host", f"{type(own).__name__}: {own}"
        return "FAILED", why + " | " + traceback.format_exc().strip().splitlines()[-2].strip()
    summary = read_run(folder).summary
    if summary["unstable_failures"]:
        return "FAILED", f"{summary['unstable_failures']} failures do not come out the same again"
    return "works", f"task {summary['task']}, {summary['failures']} unfair of {summary['evaluated']}"


def arguments(host: Host, algorithm: str, place: Place, **changes: Any) -> Any:
    inside = {"key": place.key, "time_limit": place.limit, **place.more} if place.key else dict(place.more)
    return configuration(host, algorithm, place.config, {**SHORT, "env_args": inside, **changes})


def trained(host: Host, algorithm: str, place: Place) -> None:
    """Without FairTest."""
    training = build_training(host, arguments(host, algorithm, place))
    for number in range(EPISODES):
        training.episode(number)
    training.runner.close_env()


def tested(host: Host, algorithm: str, place: Place, out: Path) -> None:
    torch.manual_seed(1)
    args = arguments(host, algorithm, place, fairtest=True, fairtest_args={**TESTED, "out": str(out)})
    runner: Any = partial(attach._runner, host.runners["episode"], host)
    training = build_training(host, args, runner)
    for number in range(EPISODES):
        training.episode(number)
    training.runner.close_env()  # training is over: the team is tested


def algorithms_of(host: Host) -> list[str]:
    module: Any = import_module(f"{host.prefix}runners")
    return sorted(path.stem for path in (Path(module.__file__).parent.parent / "config" / "algs").glob("*.yaml"))


@contextlib.contextmanager
def quiet(folder: Path) -> Iterator[None]:
    """Hosts talk a lot, and write to where they are started."""
    before = os.getcwd()
    os.chdir(folder)
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
        os.chdir(before)


def markdown(found: dict[tuple[str, str], tuple[str, str]], algorithms: Sequence[str], places: Sequence[str]) -> str:
    """The table, and under it why something does not work."""
    lines = ["| algorithm | " + " | ".join(places) + " |", "|---" * (len(places) + 1) + "|"]
    lines += [f"| {a} | " + " | ".join(found[a, place][0] for place in places) + " |" for a in algorithms]
    reasons: dict[str, list[str]] = {}
    for (algorithm, place), (what, why) in found.items():
        if what != "works":
            reasons.setdefault(f"{what}: {why}", []).append(f"{algorithm} in {place}")
    lines += ["", *(f"- {why} ({len(pairs)}: {', '.join(pairs[:4])}{', …' if len(pairs) > 4 else ''})"
                    for why, pairs in reasons.items())]  # fmt: skip
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", choices=["epymarl", "pymarlzoo"], default="epymarl")
    parser.add_argument("--algorithms", nargs="+")
    parser.add_argument("--environments", nargs="+", choices=PLACES)
    parser.add_argument("--markdown", action="store_true", help="the table once more, for docs/compatibility.md")
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    host = load_host(args.host)
    algorithms = args.algorithms or algorithms_of(host)
    places = [n for n in args.environments or PLACES if not PLACES[n].needs or find_spec(PLACES[n].needs)]
    found: dict[tuple[str, str], tuple[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="fairtest-matrix-") as folder:
        for name in places:
            for algorithm in algorithms:
                with quiet(Path(folder)):
                    found[algorithm, name] = outcome(
                        host, algorithm, PLACES[name], Path(folder) / f"{algorithm}-{name}"
                    )
                what, why = found[algorithm, name]
                print(f"{algorithm:<14}{name:<24}{what:<9}{why[:150]}", flush=True)
    counts = {
        what: sum(1 for other, _ in found.values() if other == what) for what in ("works", "refused", "host", "FAILED")
    }
    versions = [f"{name} {metadata.version(name)}" for name in LIBRARIES if find_spec(name.replace("scikit-", "sk"))]
    print(f"\n{host.name}: {len(algorithms)} algorithms, {len(places)} environments; {counts}")
    print(f"Python {sys.version.split()[0]}, {', '.join(versions)}")
    if args.markdown:
        print(f"\n{markdown(found, algorithms, places)}")
    return int(counts["FAILED"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
