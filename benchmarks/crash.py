"""Is anything lost when a run is killed? Kills runs at all moments, resumes them and compares with undisturbed ones.

python -m benchmarks.crash [--kills 200] [--every 1] [--records 200] [--seed 0] [--cases NAME ...] [--json]

Every run is forked from this process, which has imported and compiled everything, and is the real command (`fairtest
run`). A run is killed with SIGKILL at random moments, and once before each of its calls that change the disk; then it
is resumed, and some are killed again. A failure is announced once `save_batch` has returned: its child tells it through
a pipe. Exit code 1 if an announced failure is missing or any result differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from epymarl_fairtest.commands import main as fairtest
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.judged import Judged, totals
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.predictor import forest
from epymarl_fairtest.store.checksum import CHECKSUMS, unsealed
from epymarl_fairtest.store.journal import read_journal
from epymarl_fairtest.store.run import RunFolder

COMMON = ["theta=0.9", "workers=1", "engine=twin", "replay=2", "natural_episodes=20", "random_team=5", "explain=0",
          "report=false"]  # fmt: skip
SEARCH = ["rounds=1", "generations=2", "pool=60", "offspring=15", "predictor_episodes=30", "d=10"]
CASES = {
    "random, spread": ("mpe-qmix", "random", 120, ["batch=20"]),
    "fairtest, spread": ("mpe-qmix", "fairtest", 150, SEARCH),
    "starla, foraging": ("lbf-iql", "starla", 80, ["options.population=20", "options.generations=2"]),
    "hill_climber, tag": ("pp-iql", "hill_climber", 48, ["options.initial=24", "options.batch=12", "explain=1"]),
}
COMPARED = ("failures.npz", "failures.csv", "executions.npz", "evidence.npz", "journal.jsonl")
TIMES = ("wall_seconds", "cpu_seconds", "phases")
CHANGING = (
    "pwrite",
    "fsync",
    "replace",
    "unlink",
    "rmdir",
    "mkdir",
)  # the calls of `os` that change the disk, or make sure of it
MEMORY = "/dev/shm"  # as good as a disk: what a process has written outlives it
MOMENTS = ("before", "searching", "joining", "clearing", "after")
Announced = dict[int, int]  # failure -> checksum of its states


# --- children -----------------------------------------------------------------------------------------


def forked(work: Callable[[], int]) -> int:
    """The id of a child that does this and nothing else."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def telling(pipe: int) -> None:
    """From now on this process tells every failure that is saved."""
    save = RunFolder.save_batch

    def save_and_tell(self: RunFolder, number: int, purpose: str, judged: Judged) -> None:
        save(self, number, purpose, judged)
        episodes, rows = judged.episodes, np.flatnonzero(judged.unfair)
        announced = {int(episodes.id[row]): zlib.crc32(episodes.states[row].tobytes()) for row in rows}
        os.write(pipe, json.dumps(list(announced.items())).encode() + b"\n")

    RunFolder.save_batch = save_and_tell  # type: ignore[method-assign]


def dying(last: int) -> None:
    """From now on this process kills itself before the call with this number that changes the disk."""
    calls = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return count

    for name in CHANGING:
        setattr(os, name, counted(getattr(os, name)))


class Run:
    """A run that may be killed and resumed until it is finished; it remembers what was announced."""

    def __init__(self, words: Sequence[str], out: Path) -> None:
        self.words, self.out = list(words), out
        self.announced: Announced = {}

    def go(self, *, after: float | None = None, call: int | None = None) -> int:
        """Begin or go on, killed after so many seconds or before that call; the exit code, negative if it was."""
        resuming = (self.out / "manifest.json").is_file()
        if self.out.exists() and not any(self.out.iterdir()):
            self.out.rmdir()  # killed between two calls; anything else that it left is taken over
        words = ["--resume", str(self.out)] if resuming else [*self.words, "--out", str(self.out)]
        source, pipe = os.pipe()

        def work() -> int:
            os.close(source)
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            telling(pipe)
            if call is not None:
                dying(call)
            return fairtest(["run", *words])

        child = forked(work)
        os.close(pipe)
        if after is not None:
            time.sleep(after)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        with open(source, "rb") as file:
            announced = file.read()
        _, status = os.waitpid(child, 0)
        for line in announced.split(b"\n")[:-1]:
            self.announced.update(json.loads(line))
        return os.waitstatus_to_exitcode(status)

    def moment(self) -> str:
        """Where it stands, by what is on the disk."""
        if not (self.out / "manifest.json").is_file():
            return "before"
        if (self.out / "summary.json").is_file():
            return "clearing" if (self.out / "batches").is_dir() else "after"
        return "joining" if (self.out / "failures.npz").is_file() else "searching"

    def end(self) -> None:
        """Go on until it is finished."""
        for _ in range(3):
            code = self.go()
            if code == 0 or (code == 2 and (self.out / "summary.json").is_file()):
                return
        raise RuntimeError(f"{self.out} cannot be finished: exit code {code}")


# --- what must not happen -----------------------------------------------------------------------------


def lost(out: Path, announced: Announced) -> list[int]:
    """Announced failures that are neither in failures.npz nor, before that, in a part which the journal names."""
    found: Announced = {}
    paths = [out / "failures.npz"]
    if not (out / "summary.json").is_file():
        entries, _ = read_journal(out / "journal.jsonl")
        paths = [out / "parts" / f"{number:05d}.npz" for number, entry in entries.items() if entry["failures"]]
    for path in filter(Path.is_file, paths):
        with np.load(path, allow_pickle=False) as file:
            if file.files:
                states = file["states"]
                found |= {n: zlib.crc32(states[row].tobytes()) for row, n in enumerate(file["id"].tolist())}
    return [number for number, states in announced.items() if found.get(number) != states]


def differences(whole: Path, out: Path) -> list[str]:
    """The files in which a finished run differs from the undisturbed one, times aside."""
    found = [name for name in COMPARED if (whole / name).read_bytes() != (out / name).read_bytes()]
    left, right = (json.loads((path / "summary.json").read_text()) for path in (whole, out))
    if any(left[name] != right.get(name) for name in left if name not in TIMES):
        found.append("summary.json")
    sums = [unsealed((path / CHECKSUMS).read_bytes())["files"] for path in (whole, out)]
    if any(sums[0][name] != sums[1][name] for name in COMPARED):
        found.append(CHECKSUMS)
    names = [{path.name for path in folder.iterdir()} for folder in (whole, out)]
    return found + sorted(names[0] ^ names[1])


class Case:
    """A kind of run, and how it ends when nobody disturbs it."""

    def __init__(self, name: str, root: Path) -> None:
        team, method, budget, changes = CASES[name]
        policy = without_pool(team, root / "team")
        given = [word for text in (*COMMON, *changes) for word in ("--set", text)]
        words = ["--policy", str(policy), "--method", method, "--budget", str(budget), "--seed", "7", *given]
        self.name, self._words, self._root, self._runs = name, words, root, 0
        self.counts: Counter[str] = Counter()
        with contextlib.redirect_stdout(None):
            fairtest(["run", *words, "--out", str(root / "compiling")])  # here, so that children need not
        self.whole = self.new()
        begin = time.perf_counter()
        code = self.whole.go()
        self.seconds = time.perf_counter() - begin
        if code or not self.whole.announced:
            raise RuntimeError(f"{name}: exit code {code}, {len(self.whole.announced)} failures")

    def new(self) -> Run:
        self._runs += 1
        return Run(self._words, self._root / str(self._runs))

    def kill(self, run: Run, **when: Any) -> bool:
        """Was it killed? What it had announced must be there."""
        killed = run.go(**when) == -signal.SIGKILL
        moment = run.moment()
        if killed:
            self.counts["kills"] += 1
            self.counts[moment] += 1
        if moment != "before":
            self.counts["lost"] += len(lost(run.out, run.announced))
        return killed

    def finish(self, run: Run) -> None:
        run.end()
        self.counts["runs"] += 1
        self.counts["announced"] += len(run.announced)
        self.counts["lost"] += len(lost(run.out, run.announced))
        differing = differences(self.whole.out, run.out)
        if differing:
            self.counts["differing"] += 1
            print(f"  {self.name}: {run.out.name} differs in {', '.join(differing)}", file=sys.stderr)
        else:
            shutil.rmtree(run.out)

    def at_random(self, generator: np.random.Generator, kills: int) -> None:
        """Kill at random moments; every other run is killed again while it goes on."""
        before = self.counts["kills"]
        while self.counts["kills"] - before < kills:
            run = self.new()
            while self.kill(run, after=generator.uniform(0, self.seconds)) and generator.random() < 0.5:
                pass
            self.finish(run)

    def at_every_call(self, every: int) -> None:
        """Kill before the first call that changes the disk, before the second, and so on; all are resumed."""
        for call in range(1, 100_000, every):
            run = self.new()
            ended = not self.kill(run, call=call)
            if not ended and call % 2:
                self.kill(run, call=1 + call // 2)  # and once more while it goes on
            self.finish(run)
            if ended:
                return

    def as_dict(self) -> dict[str, Any]:
        counts = {name: self.counts[name] for name in ("kills", *MOMENTS, "runs", "announced", "lost", "differing")}
        return {"case": self.name, "seconds": round(self.seconds, 2), "failures": len(self.whole.announced), **counts}


def without_pool(team: str, folder: Path) -> Path:
    """A shipped team without the sample of its training, which takes longer to read than these runs do."""
    folder.mkdir(parents=True)
    for name in ("agent.th", "policy.yaml"):
        shutil.copy(shipped("policies") / team / name, folder)
    return folder


# --- the journal --------------------------------------------------------------------------------------


def episodes(count: int, first: int, generator: np.random.Generator) -> Episodes:
    """What no engine executed, as small as it can be."""
    whole: dict[str, Any] = {name: first + np.arange(count) for name in ("root_seed", "parent", "id")}
    steps: dict[str, Any] = {name: np.zeros(count, np.int32) for name in ("shift", "start_step")}
    return Episodes(
        states=generator.random((count, 3, 2)),
        obs=np.zeros((count, 2, 2, 1), np.float32),
        actions=np.zeros((count, 2, 2), np.int16),
        rewards=generator.random((count, 2, 2)),
        q=np.zeros((count, 2, 2, 3), np.float32),
        length=np.full(count, 2, np.int32),
        stream=np.zeros(count, np.uint64),
        operator=np.zeros(count, np.int8),
        **whole,
        **steps,
    )


def write_records(out: Path, records: int, seed: int) -> None:
    """A run of so many batches with one failure each, never finished."""
    generator = np.random.default_rng(seed)
    folder = RunFolder(out)
    manifest = {
        "task": "spread",
        "settings": {"index": "jfi"},
        "theta": 0.5,
        "seed": seed,
        "command": "",
        "policy_digest": "",
    }
    folder.write_manifest(manifest)
    for number in range(records):
        save_record(folder, number, generator)


def save_record(folder: RunFolder, number: int, generator: np.random.Generator) -> None:
    made = episodes(2, 2 * number, generator)
    judged = Judged(made, totals(made.rewards), np.array([0.4, 1.0]), np.array([True, False]))
    folder.save_batch(number, "execution", judged)


def torn_records(root: Path) -> dict[str, int]:
    """The last record of a journal cut at every byte: earlier ones stay, and the next one is whole."""
    write_records(root / "torn", 3, 0)
    content = (root / "torn" / "journal.jsonl").read_bytes()
    begin = content[:-1].rindex(b"\n") + 1
    count = Counter(offsets=0, lost=0)
    for cut in range(begin, len(content)):
        (root / "torn" / "journal.jsonl").write_bytes(content[:cut])
        with RunFolder.resume(root / "torn", warn=lambda _: None) as folder:
            save_record(folder, 3, np.random.default_rng(1))
        entries, damaged = read_journal(root / "torn" / "journal.jsonl")
        kept = {0, 1, 2, 3} if cut == len(content) - 1 else {0, 1, 3}  # without the line's end it is still a record
        count["offsets"] += 1
        count["lost"] += len(kept - entries.keys()) + len(damaged)
    return dict(count)


def many_writers(root: Path, records: int, writers: int = 10) -> dict[str, int]:
    """Runs under one folder, each written by a process of its own, at the same time."""
    outs = [root / "study" / "cells" / "team" / "random" / str(seed) for seed in range(writers)]

    def work(out: Path) -> int:
        write_records(out, records, int(out.name))
        return 0

    children = [forked(lambda out=out: work(out)) for out in outs]  # type: ignore[misc]
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    found = 0
    for out in outs:
        entries, damaged = read_journal(out / "journal.jsonl")
        with RunFolder.resume(out) as folder:
            whole = [number for number in entries if folder.load_batch(number) is not None]
            found += len(whole) if not damaged and folder.failure_count() == len(whole) else 0
    return {"writers": writers, "records": writers * records, "lost": writers * records - found, "failed": failed}


# --- the command --------------------------------------------------------------------------------------


def measure(args: argparse.Namespace) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    generator = np.random.default_rng(args.seed)
    forest.TREES = 10  # what a run finds does not matter here
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        root = Path(folder)
        prepared = [Case(name, root / str(number)) for number, name in enumerate(args.cases)]
        each = sum(1 / case.seconds for case in prepared)
        for case in prepared:
            case.at_random(generator, math.ceil(args.kills / case.seconds / each))  # about as long for each
        yield "killed at random moments", [case.as_dict() for case in prepared]
        for case in prepared:
            case.counts.clear()
        prepared[0].at_every_call(args.every)
        yield "killed before each call that changes the disk", [prepared[0].as_dict()]
        yield "last record of the journal cut at every byte", [torn_records(root)]
        yield "writers of runs under one folder", [many_writers(root, args.records)]


def table(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([str(row.get(name, 0)) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return "\n".join("  " + "  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)) for line in cells)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="at random moments (200)")
    parser.add_argument("--every", type=int, default=1, help="kill before every N-th call that changes the disk (1)")
    parser.add_argument("--records", type=int, default=200, help="of each of ten writers (200)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (0)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="kinds of runs (all)")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for what, rows in measure(args):
        found[what] = rows
        if not args.json:
            print(f"{what}\n{table(rows)}\n", flush=True)
    wrong = sum(row.get(name, 0) for rows in found.values() for row in rows for name in ("lost", "differing", "failed"))
    print(json.dumps(found) if args.json else f"lost or differing: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
