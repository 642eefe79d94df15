"""Does a damaged or hostile folder ever crash FairTest, fool it, or make it touch anything else?

python -m benchmarks.hostile [--tries 360] [--seed 0] [--only NAME ...] [--json]

Run folders, policy folders, training samples and studies are changed as accidents and strangers change them: links,
files of other kinds, cut and flipped bytes, giant numbers, tensors of other kinds, values with the right checksum. The
commands that read them run in this process. Counted are tracebacks, results that differ without a word from those of
the folder as it was, and changes of anything outside the folder. Exit code 1 if there is any.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.crash import differences
from epymarl_fairtest.commands import main as fairtest
from epymarl_fairtest.store.checksum import CHECKSUMS, checksum, sealed, unsealed
from epymarl_fairtest.store.journal import journal_line, read_journal
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.team.sample import FILE as SAMPLE
from epymarl_fairtest.team.sample import TrainingSample

TEAM = Path(__file__).resolve().parents[1] / "tests" / "golden" / "team"
LITTLE = ("theta=0.9", "workers=1", "report=false", "explain=0", "replay=2", "natural_episodes=20", "random_team=5")
SMALL = ["--method", "random", *(word for text in LITTLE for word in ("--set", text))]
SEARCH = [*SMALL, "--budget", "40", "--seed", "3", "--set", "batch=10"]
WORDS = {
    "report": ["report", "it"],
    "replay": ["replay", "it", "--policy", "team"],
    "gate": ["gate", "it", "--max-rate", "0.9", "--min-evaluated", "1"],
    "compare": ["compare", "it", "whole"],
    "runs": ["runs", "it"],
    "resume": ["run", "--resume", "it", "--policy", "team"],
}
STUDY = [
    *SMALL[2:],
    "rq1",
    "--policies",
    "team",
    "--seeds",
    "1",
    "--methods",
    "random",
    "--budget",
    "20",
    "--jobs",
    "1",
]
STUDY += ["--keep-failures"]
FILES = ("manifest.json", "summary.json", CHECKSUMS, "journal.jsonl", "failures.npz", "failures.csv", "executions.npz",
         "evidence.npz")  # fmt: skip
ODD: list[Any] = [
    None, True, -1, 0, 1e308, float("nan"), float("inf"), 10**30, 10**400, "", "text", "a\nb\x1b[31m", "../precious",
    [], {}, [[]], {"a": {"b": []}}, ["x"] * 300, "x" * 100_000, 0.5, "evil:f",
]  # fmt: skip


@dataclass
class Try:
    """One folder in the hands of a stranger: where it is, and how it was changed."""

    rng: np.random.Generator
    it: Path
    precious: Path
    done: list[str] = field(default_factory=list)
    forged: bool = False  # with right checksums: it says something else, and nobody can know

    def one(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def say(self, what: str) -> None:
        self.done.append(what)


# --- what strangers and accidents do to a file --------------------------------------------------------


def gone(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def link(at: Try, path: Path) -> None:
    targets = [
        "precious",
        "precious/bashrc",
        "precious/00000.npz",
        "precious/nothing",
        path.name,
        "precious/summary.json",
    ]
    target = at.one(targets)
    gone(path)
    path.symlink_to(os.path.relpath(at.precious.parent / target, path.parent) if "/" in target or target == "precious"
                    else target)  # fmt: skip


def hard_link(at: Try, path: Path) -> None:
    gone(path)
    os.link(at.precious / at.one(["bashrc", "00000.npz", "summary.json"]), path)


def other_kind(at: Try, path: Path) -> None:
    gone(path)
    if at.rng.random() < 0.5:
        path.mkdir()
        (path / "mine").write_text("mine")
    else:
        os.mkfifo(path)


def damaged(at: Try, path: Path) -> None:
    content = path.read_bytes() if path.is_file() else b""
    place = int(at.rng.integers(len(content) + 1))
    changed = at.one(
        [b"", content[:place], content + b"\n\0", at.rng.bytes(200),
         content[:place] + at.rng.bytes(3) + content[place + 3 :], b"{}", b"[]", b"[" * 100_000, b"9" * 5000]
    )  # fmt: skip
    gone(path)
    path.write_bytes(changed)


ACCIDENTS: list[Callable[[Try, Path], None]] = [
    link,
    hard_link,
    other_kind,
    damaged,
    damaged,
    lambda at, path: gone(path),
]


def accident(at: Try, names: Sequence[str]) -> None:
    name, what = at.one(names), at.one(ACCIDENTS)
    path = at.it / name
    path.parent.mkdir(parents=True, exist_ok=True)
    what(at, path)
    at.say(f"{name}: {getattr(what, '__name__', 'gone')}")


# --- forgeries: another value, with the checksum that belongs to it -----------------------------------


def odd_value(at: Try, values: Any) -> Any:
    """The same with one value, anywhere in it, replaced or missing."""
    if isinstance(values, dict) and values and at.rng.random() < 0.9:
        name = at.one(sorted(values))
        deeper = isinstance(values[name], dict) and at.rng.random() < 0.6
        if not deeper and at.rng.random() < 0.15:
            at.say(f"without {name}")
            return {key: value for key, value in values.items() if key != name}
        at.say(str(name))
        return values | {name: odd_value(at, values[name]) if deeper else odd_value(at, None)}
    odd = at.one(ODD)
    at.say(repr(odd)[:30])
    return odd


def forge_json(at: Try, name: str) -> None:
    path = at.it / name
    values = json.loads(path.read_text())
    seal = values.pop("crc", None) is not None
    changed = odd_value(at, values)
    if isinstance(changed, dict) and seal:
        with contextlib.suppress(ValueError):  # of a number with too many digits
            changed = sealed(changed)
    with contextlib.suppress(ValueError):
        path.write_text(json.dumps(changed))
    at.forged = True
    promise(at.it, name)


def promise(folder: Path, name: str) -> None:
    """Make checksums.json say what the file is now."""
    record = folder / CHECKSUMS
    if name != CHECKSUMS and record.is_file():
        files = unsealed(record.read_bytes())["files"] | {name: checksum(folder / name)}
        record.write_text(json.dumps(sealed({"files": files})))


def odd_array(at: Try, array: np.ndarray) -> np.ndarray:
    array = np.atleast_1d(array)
    kinds = ["f8", "f4", "f2", "i1", "i8", "u8", "U3", "S2", "c16", "?", "M8[s]"]
    changes: list[Callable[[], np.ndarray]] = [
        lambda: array[:0],
        lambda: array[..., None],
        lambda: array[:-1],
        lambda: np.zeros(array.shape, at.one(kinds)),
        lambda: np.zeros((2, 3, 4), at.one(kinds)),
        lambda: np.array(7),
        lambda: np.full(array.shape, -1).astype(array.dtype) if array.dtype.kind in "iuf" else array[:0],
        lambda: np.full(array.shape, np.nan),
        lambda: np.full(array.shape, 2**62) if array.dtype.kind in "iu" else np.full(array.shape, np.inf),
    ]
    which = int(at.rng.integers(len(changes)))
    at.say(f"change {which}")
    return changes[which]()


def forge_arrays(at: Try, path: Path) -> None:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    if not arrays:
        return damaged(at, path)
    name = at.one(sorted(arrays))
    at.say(f"{path.name} {name}")
    arrays[name] = odd_array(at, arrays[name])
    if at.rng.random() < 0.1:
        del arrays[name]
    with path.open("wb") as file:
        np.savez(file, **arrays)
    at.forged = True
    promise(path.parent, path.name)


def forge_journal(at: Try) -> None:
    path = at.it / "journal.jsonl"
    entries, _ = read_journal(path)
    number = at.one(sorted(entries))
    entries[number] = odd_value(at, entries[number])
    at.say("journal")
    with contextlib.suppress(ValueError):
        lines = [journal_line(entry if isinstance(entry, dict) else {"x": entry}) for entry in entries.values()]
        path.write_bytes(b"".join(lines))
    at.forged = True


def forge_batch(at: Try) -> None:
    """A batch or its failures, and the journal line that promises them."""
    kind = at.one(["batches", "parts"])
    paths = sorted((at.it / kind).glob("*.npz"))
    if not paths:
        return forge_journal(at)
    path = at.one(paths)
    forge_arrays(at, path)
    entries, _ = read_journal(at.it / "journal.jsonl")
    entry = entries[int(path.stem)]
    entry["batch_checksum" if kind == "batches" else "part_checksum"] = checksum(path)
    (at.it / "journal.jsonl").write_bytes(b"".join(map(journal_line, entries.values())))


# --- policies -----------------------------------------------------------------------------------------


def odd_tensor(at: Try, tensor: torch.Tensor) -> Any:
    changes: list[Callable[[], Any]] = [
        lambda: tensor.half(),
        lambda: tensor.double(),
        lambda: tensor.bfloat16(),
        lambda: tensor.to_sparse(),
        lambda: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
        lambda: tensor.int(),
        lambda: tensor.bool(),
        lambda: tensor.to(torch.complex64),
        lambda: tensor * float("nan"),
        lambda: tensor[:0],
        lambda: tensor[None],
        lambda: tensor.to("meta"),
        lambda: torch.zeros(1).expand(10**6, 10**6),
        lambda: torch.nn.Parameter(tensor),
        lambda: [1.0, 2.0],
        lambda: "text",
    ]
    which = int(at.rng.integers(len(changes)))
    at.say(f"tensor change {which}")
    return changes[which]()


def forge_weights(at: Try) -> None:
    path = at.it / "agent.th"
    weights = torch.load(path, weights_only=True)
    name = at.one(sorted(weights))
    choice = at.rng.random()
    if choice < 0.7:
        weights[name] = odd_tensor(at, weights[name])
    elif choice < 0.85:
        weights[at.one([7, "agents.0.fc1.weight", "agents.x", "fc1.weight.more", ("a", 1)])] = weights.pop(name)
        at.say("other names")
    else:
        weights = at.one([{}, [1], weights[name], {"a": {"b": weights[name]}}, None])
        at.say("no state dict")
    torch.save(weights, path)
    at.forged = True


LAUGHS = "\n".join(
    ["a: &a [x, x, x, x, x, x, x, x, x]"]
    + [f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]" for i in range(12)]
)
MERGES = "\n".join(
    ["a: &a {x: 1}"]
    + [f"{chr(98 + i)}: &{chr(98 + i)} {{<<: [{', '.join([f'*{chr(97 + i)}'] * 9)}]}}" for i in range(12)]
)
LINES = [
    "time_limit: 1000000000", "time_limit: 1e9", "n_agents: 1000000000", "hidden_dim: 99999999", "obs_size: 1000000000",
    f"training_steps: {'9' * 5000}", "test_return: .nan", "key: 2020-01-01", "env_args: {when: 2020-01-01}",
    "env_args: {1: 2}", "env_args: {x: .nan}", f"env_args: {{x: {'9' * 4000}}}", "env_args: {x: !!binary aGk=}",
    "env_args: {x: !!set {a, b}}", "env_args: {N: 4}", "env_args: {N: -3}", "env_args: {render_mode: nothing}",
    "env_args: {allocation: 'evil:f'}", "env_args: {disable_env_checker: 1}", "env_args: &a {b: *a}", LAUGHS, MERGES,
    "allocation: evil:f", "allocation: os:abort", "allocation: os:getcwd", "allocation: 'no:thing'", "allocation: ':'",
    "key: evil:id", "key: os:id", "key: ''", "key: ':'", "key: CartPole-v1", "key: 'a:b:c'", "key: \"a\\nb\"",
    "algorithm: mappo", "algorithm: ippo_ns", "algorithm: ''", "algorithm: 7", "agent_output_type: pi_logits",
    "format: 2", "format: 1.5", "hidden_dim: 9", "n_actions: 6", "use_rnn: 'yes'", "obs_last_action: false",
    "? [a, b]\n: 1", "colour: red", "command: !!python/object/apply:os.getcwd []", "[" * 5000,
    "time_limit: 2020-13-45", "\t", "7: 7",
    "env_args: {x: {y: {z: [1, [2, [3, {a: [.inf]}]]]}}}", "allocation: json:loads", "allocation: epymarl_fairtest:f",
]  # fmt: skip


def forge_description(at: Try) -> None:
    line = at.one(LINES)
    name = line.split(":")[0]
    kept = [text for text in (at.it / "policy.yaml").read_text().splitlines() if not text.startswith(f"{name}:")]
    (at.it / "policy.yaml").write_text("\n".join([*kept, line]) + "\n")
    at.say(line[:40])
    at.forged = True


def forge_sample(at: Try) -> None:
    forge_arrays(at, at.it / SAMPLE)


# --- which folders, and what is done with them --------------------------------------------------------


def change_interrupted(at: Try) -> None:
    names = [*FILES[:1], "journal.jsonl", ".lock", "batches", "parts", "damaged", "policy", "report", "summary.json",
             "batches/00000.npz", "parts/00000.npz", "batches/00002.npz", "failures.npz", CHECKSUMS]  # fmt: skip
    for _ in range(int(at.rng.integers(1, 4))):
        choice = at.rng.random()
        if choice < 0.6:
            accident(at, names)
        elif choice < 0.75 and (at.it / "manifest.json").is_file() and not (at.it / "manifest.json").is_symlink():
            with contextlib.suppress(ValueError):
                forge_json(at, "manifest.json")
        elif (at.it / "journal.jsonl").is_file() and read_journal(at.it / "journal.jsonl")[0]:
            forge_batch(at) if choice < 0.9 else forge_journal(at)


def change_finished(at: Try) -> None:
    choice = at.rng.random()
    if choice < 0.4:
        accident(at, [*FILES, "report", "policy", ".lock"])
    elif choice < 0.75:
        at.say("forged")
        forge_json(at, at.one(["summary.json", "manifest.json", CHECKSUMS, "summary.json"]))
    else:
        forge_arrays(at, at.it / at.one(["failures.npz", "executions.npz", "evidence.npz"]))


def change_policy(at: Try) -> None:
    choice = at.rng.random()
    if choice < 0.5:
        forge_description(at)
    elif choice < 0.8:
        forge_weights(at)
    else:
        accident(at, ["agent.th", "policy.yaml"])


def change_sample(at: Try) -> None:
    forge_sample(at) if at.rng.random() < 0.75 else accident(at, [SAMPLE])


def change_study(at: Try) -> None:
    job = "runs/team/random/0"
    names = ["study.json", "runs", "runs/team", "runs/team/random", job, "runs/team/random/.0.lock", "failed", "aside",
             "results.csv", "figures", *(f"{job}/{name}" for name in FILES)]  # fmt: skip
    if at.rng.random() < 0.6:
        accident(at, names)
    else:
        inner = Try(at.rng, at.one([at.it, at.it / job, at.it / job]), at.precious, at.done)
        forge_json(inner, "study.json" if inner.it == at.it else at.one(["summary.json", "manifest.json"]))
        at.forged = True


def resuming(at: Try) -> list[list[str]]:
    return [WORDS["resume"], WORDS["runs"]]


def reading(at: Try) -> list[list[str]]:
    names = ["report", "replay", "gate", "compare", "resume"]
    return [WORDS["runs"], *(WORDS[str(name)] for name in at.rng.choice(names, 2, replace=False))]


def testing(at: Try) -> list[list[str]]:
    return [["run", "--policy", "it", "--out", "new", *SMALL, "--budget", "4", "--set", "engine=lockstep"]]


def studying(at: Try) -> list[list[str]]:
    again = ["study", *STUDY, "--out", "it"]
    copied = ["study", *STUDY, "--out", "new", "--runs-from", "it"]
    return [again if at.rng.random() < 0.6 else copied]


KINDS: dict[str, tuple[str, Callable[[Try], None], Callable[[Try], list[list[str]]], float]] = {
    "interrupted runs": ("interrupted", change_interrupted, resuming, 0.3),
    "finished runs": ("whole", change_finished, reading, 0.3),
    "policy folders": ("team", change_policy, testing, 0.22),
    "training samples": ("team", change_sample, testing, 0.1),
    "studies": ("study", change_study, studying, 0.08),
}
"""Name -> the folder that is changed, how, the commands that read it, and its share of the tries."""


# --- what must not happen -----------------------------------------------------------------------------


def fingerprint(folder: Path) -> str:
    """Of everything in it: names, kinds, modes, contents."""
    sha = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        sha.update(f"{path.relative_to(folder)} {status.st_mode} {status.st_size}".encode())
        if path.is_file() and not path.is_symlink():
            sha.update(path.read_bytes())
    return sha.hexdigest()


def called(words: Sequence[str]) -> tuple[Any, str, str]:
    """Exit code (the traceback where there is none), what was printed, what was said."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = fairtest(list(words))
        except SystemExit as stop:
            code = stop.code
        except BaseException:
            code = traceback.format_exc()
    return code, out.getvalue(), err.getvalue()


class Hostile:
    """A place with folders as they should be, to be copied and changed."""

    def __init__(self, root: Path) -> None:
        self.root, self.base = root, root / "base"
        self.base.mkdir()
        self._make_team()
        with contextlib.chdir(self.base):
            for words in (["--out", "whole", *SEARCH], ["--out", "interrupted", *SEARCH]):
                with stopped_after(2) if words[1] == "interrupted" else contextlib.nullcontext():
                    code, _, said = called(["run", "--policy", "team", *words])
                if code not in (0, 130):
                    raise RuntimeError(f"{code}: {said}")
            shutil.copytree("whole", "it")
            self.expected = {name: called(words)[:2] for name, words in WORDS.items() if name not in ("resume", "runs")}
            code, _, said = called(["study", *STUDY, "--out", "study"])
            if code:
                raise RuntimeError(f"{code}: {said}")
            self.results = Path("study/results.csv").read_text().splitlines()[0]
        self.tries = 0
        self.counts: dict[str, Counter[str]] = {}

    def _make_team(self) -> None:
        shutil.copytree(TEAM, self.base / "team")
        sample, rng = TrainingSample(20, 1), np.random.default_rng(1)
        for position in sample.offer(20):
            sample.add(position, rng.normal(size=(6, 3, 5)).astype(np.float32), rng.normal(size=(6, 3)))
        sample.save(self.base / "team" / SAMPLE)

    def attack(self, kind: str, rng: np.random.Generator) -> None:
        name, change, commands, _ = KINDS[kind]
        place = self.root / f"try-{self.tries}"
        self.tries += 1
        counts = self.counts.setdefault(kind, Counter())
        counts["folders"] += 1
        at = self._prepared(place, name, rng)
        change(at)
        watched = [place / "precious", place / "team", place / "whole"]
        with contextlib.chdir(place):
            for words in commands(at):
                before = [fingerprint(folder) for folder in watched] + sorted(os.listdir(place))
                code, printed, said = called(words)
                after = [fingerprint(folder) for folder in watched] + sorted(n for n in os.listdir(place) if n != "new")
                wrong = self._wrong(at, words, code, printed, said)
                if before != after:
                    wrong.append("touched")
                self._count(counts, at, words, code, wrong, said)
                if Path("new").exists():
                    shutil.rmtree("new")
        shutil.rmtree(place)

    def _prepared(self, place: Path, name: str, rng: np.random.Generator) -> Try:
        place.mkdir()
        for folder in ("team", "whole"):
            shutil.copytree(self.base / folder, place / folder)
        shutil.copytree(self.base / name, place / "it")
        precious = place / "precious"
        for path in ("bashrc", "sub/deep", "team/random/0/mine", ".0a.0b1c2d3e.tmp", "evil.py"):
            (precious / path).parent.mkdir(parents=True, exist_ok=True)
            (precious / path).write_text(f"mine: {path}\n")
        for file in ("summary.json", "manifest.json"):
            shutil.copy(self.base / "whole" / file, precious / file)
        shutil.copy(self.base / "whole" / "failures.npz", precious / "00000.npz")
        (place / "it" / "evil.py").write_text("open('../EXECUTED', 'w')\nf = id = None\n")
        shutil.copy(place / "it" / "evil.py", place / "evil.py")
        return Try(rng, place / "it", precious)

    def _wrong(self, at: Try, words: Sequence[str], code: Any, printed: str, said: str) -> list[str]:
        """What this command did that it must not."""
        wrong = []
        if code not in (0, 1, 2) or "Traceback" in printed + said:
            wrong.append("tracebacks")
        if code == 2 and not said.strip():
            wrong.append("without a word")
        if code == 2 and words[0] == "run" and "new" in words and Path("new").exists():
            wrong.append("left a run folder")
        if at.forged or code not in (0, 1):
            return wrong
        if "--resume" in words and code == 0 and differences(Path("whole"), Path("it")):
            left = set(differences(Path("whole"), Path("it"))) - {"damaged", "evil.py", "report", "policy", *STRAY}
            wrong += ["silent differences"] if left else []
        elif words[0] in self.expected and (code, printed) != self.expected[words[0]] and not said:
            wrong.append("silent differences")
        return wrong

    def _count(
        self, counts: Counter[str], at: Try, words: Sequence[str], code: Any, wrong: list[str], said: str
    ) -> None:
        counts["commands"] += 1
        counts["refused" if code == 2 else "taken"] += code in (0, 1, 2)
        for what in wrong:
            counts[what] += 1
        if wrong:
            told = code if isinstance(code, str) else f"{code} {said[-1500:]}"
            print(
                f"\n{', '.join(wrong)}: {' '.join(words)}\n  {'; '.join(at.done)}\n{told}", file=sys.stderr, flush=True
            )


STRAY = {"batches", "parts", "mine"}  # kept where somebody keeps files of his own in them
WRONG = ("tracebacks", "silent differences", "touched", "without a word", "left a run folder")


@contextlib.contextmanager
def stopped_after(batches: int) -> Iterator[None]:
    """A run in here is interrupted when it has saved so many batches."""
    save = RunFolder.save_batch

    def save_and_stop(self: RunFolder, number: int, *rest: Any) -> None:
        save(self, number, *rest)
        if number == batches:
            raise KeyboardInterrupt

    RunFolder.save_batch = save_and_stop  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        RunFolder.save_batch = save  # type: ignore[method-assign]


def measure(tries: int, seed: int, only: Sequence[str]) -> dict[str, dict[str, int]]:
    """Counts by kind of folder."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hostile = Hostile(Path(folder))
        for kind in only:
            rng = np.random.default_rng([seed, zlib.crc32(kind.encode())])
            for _ in range(max(1, round(tries * KINDS[kind][3]))):
                hostile.attack(kind, rng)
        return {kind: dict(counts) for kind, counts in hostile.counts.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=360, help="folders in all (360)")
    parser.add_argument("--seed", type=int, default=0, help="of the changes (0)")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), help="some kinds of folders")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    args = parser.parse_args()
    found = measure(args.tries, args.seed, args.only)
    wrong = sum(counts.get(name, 0) for counts in found.values() for name in WRONG)
    if args.json:
        print(json.dumps(found))
    else:
        columns = ("folders", "commands", "refused", "taken", *WRONG)
        print(f"{'':<18}" + "".join(f"{name:>{len(name) + 2}}" for name in columns))
        for kind, counts in found.items():
            print(f"{kind:<18}" + "".join(f"{counts.get(name, 0):>{len(name) + 2}}" for name in columns))
        print(f"wrong: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
