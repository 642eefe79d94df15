"""`fairtest study`: run the paper's experiments on any teams, and write their tables and figures.

Knows the command line, the order of things and what is printed; grid, backends, tables and figures are elsewhere.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest.commands.arguments import given_settings, warn
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.shipped import presets
from epymarl_fairtest.core.stopping import check, stoppable
from epymarl_fairtest.study.kinds import KINDS

if TYPE_CHECKING:
    from epymarl_fairtest.study.jobs import Job
    from epymarl_fairtest.study.plan import Study
    from epymarl_fairtest.study.rows import Results

MOST_SEEDS = 10_000
ORDER = 110


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "study",
        help="the paper's experiments on any teams, with statistics and figures",
        epilog="example: fairtest study rq1 --policies results/fairtest/RUN/policy --seeds 5 --preset quick --out out",
    )
    parser.add_argument(
        "study", choices=list(KINDS), help=", ".join(f"{name} {kind.varies}" for name, kind in KINDS.items())
    )
    parser.add_argument("--policies", type=Path, nargs="+", required=True, metavar="DIR", help="agent.th, policy.yaml")
    parser.add_argument("--seeds", default="10", help="how many, from 0 (10), or which ones: 3,5,7")
    parser.add_argument("--accounting", choices=("strict", "paper"), help="what counts against the budget (strict)")
    parser.add_argument("--preset", help=f"{', '.join(presets())} (the one with the accounting's name)")
    parser.add_argument("--budget", type=int, help="episodes per run")
    parser.add_argument(
        "--methods", nargs="+", metavar="NAME", help="methods of rq1 (all); NAME:OPTION=VALUE has its own row"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any other setting")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder of the study; continued if it exists"
    )
    parser.add_argument(
        "--runs-from",
        type=Path,
        nargs="+",
        default=[],
        metavar="STUDY",
        help="copy its finished runs that are the same",
    )
    parser.add_argument("--keep-failures", action="store_true", help="keep failures.npz of every run (large)")
    parser.add_argument("--backend", choices=("processes", "dask", "ray"), default="processes", help="(processes)")
    parser.add_argument("--address", help="of the cluster, e.g. tcp://HOST:8786 (dask) or HOST:6379 (ray)")
    parser.add_argument("--jobs", type=int, help="runs at a time on this machine (its cores)")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds to wait for the cluster (20)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(func=study)


def study(args: argparse.Namespace) -> int:
    from epymarl_fairtest.study.backends import check_place
    from epymarl_fairtest.study.jobs import finished
    from epymarl_fairtest.study.plan import open_folder, plan_study
    from epymarl_fairtest.study.reuse import copy_run, reusable_runs

    clock = time.perf_counter()
    check_place(args.backend, args.jobs, args.address, args.timeout)
    planned = plan_study(
        args.study, args.policies, seeds_of(args.seeds), _given(args), methods=args.methods, root=args.out,
        command=command_of(args), keep_failures=args.keep_failures,
    )  # fmt: skip
    jobs = planned.jobs()
    waiting = [job for job in jobs if finished(job) is None]
    reusable = {other: reusable_runs(waiting, planned, other, warn) for other in args.runs_from if waiting}
    open_folder(planned)
    for other, runs in reusable.items():
        copied = sum(copy_run(source, job) for source, job in runs)
        warn(f"{copied} finished runs copied from {other}")
    waiting = [job for job in waiting if finished(job) is None]
    if args.keep_failures and (lost := _without_failures(jobs)):
        warn(f"--keep-failures: {lost} runs were finished without it and kept none; choose another --out to have them")
    try:
        with stoppable():
            failed, cpu = _run(planned, jobs, waiting, args)
    except KeyboardInterrupt as stop:
        _write(planned, _results(planned, jobs), figures=False)
        warn("interrupted; finished runs are kept and in the tables, and the same command continues")
        return 128 + int(getattr(stop, "number", signal.SIGINT))
    results = _results(planned, jobs)
    tables = _write(planned, results)
    counts = {
        "jobs": len(jobs),
        "run": len(waiting) - len(failed),
        "failed": {str(job): error for job, error in failed.items()},
        "wall_seconds": round(time.perf_counter() - clock, 3),
        "cpu_seconds": round(cpu, 3),
        "cpu_seconds_of_all": round(sum(row["cpu_seconds"] for row in results.rows), 3),
    }
    if args.json:
        from epymarl_fairtest.study.rows import statistics_rows

        print(json.dumps({**counts, "rows": results.rows, "statistics": statistics_rows(results)}))
    else:
        print(tables)
        print(_closing(counts, planned.root))
    return 1 if failed else 0


# --- what the user gave -------------------------------------------------------------------------------


def seeds_of(text: str) -> list[int]:
    """`10` is 0 to 9; `3,5,7` and `3,` are these."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    if not all(part.isdecimal() for part in parts) or (len(parts) == 1 and "," not in text and int(parts[0]) < 1):
        raise FairTestError(f"--seeds {text!r} is neither a number of seeds (10) nor a list of them (3,5,7).")
    if "," not in text and int(parts[0]) > MOST_SEEDS:
        raise FairTestError(
            f"--seeds {text} is too many; {MOST_SEEDS:,} are allowed. Write {text}, for this one alone."
        )
    return [int(part) for part in parts] if "," in text else list(range(int(parts[0])))


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The settings as given. Without a preset, the one with the accounting's name is taken."""
    given = given_settings(args)
    given.pop("out", None)
    if "preset" not in given:
        given["preset"] = given.get("accounting", "strict")
    return given


def command_of(args: argparse.Namespace) -> str:
    """The command as every table states it: everything that can change a number, not where it was computed."""
    words = ["fairtest", "study", args.study, "--policies", *map(str, args.policies), "--seeds", args.seeds]
    for name in ("accounting", "preset", "budget"):
        if getattr(args, name) is not None:
            words += [f"--{name}", str(getattr(args, name))]
    words += ["--methods", *args.methods] if args.methods else []
    for assignment in args.set:
        words += ["--set", assignment]
    return shlex.join([*words, "--out", str(args.out)])


# --- running ------------------------------------------------------------------------------------------


def _run(
    planned: Study, jobs: Sequence[Job], waiting: Sequence[Job], args: argparse.Namespace
) -> tuple[dict[Job, str], float]:
    """Run what is not finished; the jobs that failed, and the CPU seconds of those that did not."""
    from epymarl_fairtest.study.backends import Place, cores, run_all
    from epymarl_fairtest.study.jobs import run_job, save_error

    failed: dict[Job, str] = {}
    cpu = 0.0
    warned: set[tuple[str, str, str]] = set()
    if not waiting:
        return failed, cpu
    folders = tuple(team.folder for team in planned.teams.values())
    workers = args.jobs if args.jobs is not None else cores()
    place = Place(args.backend, workers, args.address, args.timeout, planned.root / "study.json", folders)
    with _progress(len(jobs), len(jobs) - len(waiting), planned.common.progress) as tell:
        for job, result in run_all(run_job, waiting, place):
            if "error" in result:
                failed[job] = result["error"]
                save_error(job, result["error"])
            else:
                cpu += result["summary"]["cpu_seconds"]
            new = {(job.team, job.variant, message) for message in result.get("warnings", ())} - warned
            warned |= new  # once per team and variant, not once per seed
            tell(job, result, sorted(message for *_, message in new))
            check()  # a backend may have swallowed what the signal raised
    return failed, cpu


@contextmanager
def _progress(total: int, done: int, wanted: bool) -> Iterator[Any]:
    """On a terminal a bar with the time left, elsewhere a line per finished job."""
    from epymarl_fairtest.campaign.observers import progress_bar

    terminal, begun, count = sys.stderr.isatty(), time.perf_counter(), done
    with progress_bar(total, wanted and terminal, initial=done, desc="FairTest study", unit="run") as bar:

        def tell(job: Job, result: dict[str, Any], warnings: Sequence[str]) -> None:
            nonlocal count
            count += 1
            bar.update()
            for message in warnings:
                bar.write(f"fairtest: {job}: {message}", file=sys.stderr)
            if "error" in result or not terminal:
                left = (time.perf_counter() - begun) / (count - done) * (total - count)
                rest = f"; about {_duration(left)} left" if total > count else ""
                bar.write(f"fairtest: [{count}/{total}] {job}: {_outcome(result)}{rest}", file=sys.stderr)

        yield tell


def _outcome(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"FAILED: {result['error'].strip().splitlines()[-1]}"
    summary = result["summary"]
    failures = f"{summary['failures']} failures, " if "failures" in summary else ""
    return f"{failures}{summary['wall_seconds']:.1f} s"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# --- what a study leaves behind -----------------------------------------------------------------------


def _without_failures(jobs: Sequence[Job]) -> int:
    """How many finished jobs had failures and did not keep them."""
    from epymarl_fairtest.study.jobs import EXECUTED, finished

    summaries = ((job, finished(job) or {}) for job in jobs)
    return sum(bool(summary.get("failures")) and not (job.path / EXECUTED[0]).is_file() for job, summary in summaries)


def _results(planned: Study, jobs: Sequence[Job]) -> Results:
    """Of the jobs that are finished."""
    from epymarl_fairtest.study.jobs import finished
    from epymarl_fairtest.study.plan import labels_of
    from epymarl_fairtest.study.rows import Results, growth_rows, tidy_row

    common, kind = planned.common, KINDS[planned.kind]
    rows, growth = [], []
    for job in jobs:
        if (summary := finished(job)) is None:
            continue
        known = {"policy": job.team, "variant": job.variant, "seed": job.seed}
        growth += growth_rows(summary, **known)
        row = tidy_row(
            summary,
            study=planned.kind,
            algorithm=planned.teams[job.team].algorithm,
            accounting=common.accounting,
            preset=common.preset,
            budget=common.budget,
            run=str(job.path.relative_to(planned.root)),
            **known,
        )
        rows.append(row)
    labels = labels_of(planned.kind, planned.variants)
    return Results(rows, list(planned.teams), list(planned.variants), labels, kind.reference, growth)


def _write(planned: Study, results: Results, *, figures: bool = True) -> str:
    """results.csv, growth.csv, statistics.csv, tables.md, tables.tex and figures/; the tables as text."""
    from epymarl_fairtest.core.files import write_atomically
    from epymarl_fairtest.study import rows as kept
    from epymarl_fairtest.study import tables as made

    common, runs = planned.common, len(planned.seeds)
    tables = made.study_tables(planned.kind, results, runs)
    about = (
        f"{len(results.rows)} of {len(results.teams) * len(results.variants) * runs} runs; budget {common.budget:,}"
        f" episodes, {common.accounting} accounting, preset {common.preset}."
    )
    note = made.NOTES.get(planned.kind, made.NOTE)
    head, foot = f"# {KINDS[planned.kind].title}\n\n{about}\n", f"{note}\n"
    stated = f"\nCommand: `{planned.command}`\n"
    files = {
        "results.csv": kept.to_csv(results.rows, list(kept.COLUMNS)),
        "growth.csv": kept.to_csv(results.growth, kept.GROWTH),
        "statistics.csv": kept.to_csv(kept.statistics_rows(results), kept.STATISTICS),
        "tables.md": "\n".join([head, *(made.markdown(table) + stated for table in tables), foot]),
        "tables.tex": f"% {about} Needs booktabs.\n% {note}\n\n"
        + "\n".join(made.latex(table, planned.command, common.accounting) for table in tables),
    }
    for name, content in files.items():
        write_atomically(planned.root / name, lambda file, content=content: file.write(content.encode()))  # type: ignore[misc]
    if figures:
        _draw(planned, results)
    return "\n".join([head, *map(made.markdown, tables), foot])


def _draw(planned: Study, results: Results) -> None:
    from epymarl_fairtest.core.files import make_folder
    from epymarl_fairtest.report.libraries import needed_for
    from epymarl_fairtest.study.plan import in_front
    from epymarl_fairtest.study.tables import AUCS

    try:
        with needed_for("Drawing them"):
            from epymarl_fairtest.report.study_curves import curve_figures
            from epymarl_fairtest.report.study_figures import Drawing, study_figures
    except FairTestError as error:
        warn(f"no figures: {error}, then give the same command again")
        return
    make_folder(planned.root / "figures")
    folder = planned.root / "figures"
    budget = f"{planned.common.budget:,} episodes, {planned.common.accounting} accounting"
    if planned.kind == "rq3a":
        drawing = Drawing(results.teams, list(AUCS), AUCS, "cv_auc_full")
        values: dict[str, Any] = {
            "auc": {team: {auc: results.values(team, results.reference, auc) for auc in AUCS} for team in results.teams}
        }
    else:
        front = in_front(planned.kind, results.variants)
        drawing = Drawing(results.teams, results.variants, results.labels, results.reference, front)
        values = {
            metric: {team: {v: results.values(team, v, metric) for v in results.variants} for team in results.teams}
            for metric in results.metrics
        }
    study_figures(planned.kind, drawing, values, folder, budget)
    if planned.kind == "rq1":
        curve_figures(drawing, results.curves(), results.areas(), results.tenths(), folder, budget)


def _closing(counts: dict[str, Any], root: Path) -> str:
    failed, there = counts["failed"], counts["jobs"] - counts["run"] - len(counts["failed"])
    lines = [
        f"runs      {counts['jobs']}: {counts['run']} run now, {there} were there already, {len(failed)} failed",
        f"time      {counts['wall_seconds']:.1f} s; CPU {counts['cpu_seconds']:.1f} s in this invocation,"
        f" {counts['cpu_seconds_of_all']:.1f} s in all finished runs",
        f"results   {root} (results.csv, growth.csv, statistics.csv, tables.md, tables.tex, figures/)",
    ]
    lines += [f"failed    {job}: {error.strip().splitlines()[-1]}" for job, error in failed.items()]
    if failed:
        lines.append(f"          see {root / 'failed'}; the same command tries them again")
    return "\n".join(lines)
