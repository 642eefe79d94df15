"""Does bad input ever end in anything but a clear error? Settings, files and command lines that nobody would write.

python -m benchmarks.fuzz [--tries 20000] [--seed 0] [--only NAME ...] [--json]

Hypothesis makes the inputs (pip install hypothesis). Each must be taken, or refused with the one error that users see;
a command must end with 0, 1 or 2. What is found is shrunk and printed, and the exit code is then 1. The tests run the
same properties with few tries.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import shutil
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from epymarl_fairtest.commands import main as fairtest
from epymarl_fairtest.commands.parser import make_parser
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.settings import FIELDS, flat_names, parse_assignments
from epymarl_fairtest.store.failures import COPIED, load_failures
from epymarl_fairtest.store.journal import journal_line, read_journal
from epymarl_fairtest.strategies import STRATEGIES, configure, strategy_of
from epymarl_fairtest.team.checkpoint import load_record
from epymarl_fairtest.team.sample import load_sample

NAME = st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=10)
MEANT = st.sampled_from(
    ["auto", "scaled", "all", "null", "f0", "f1,f3", "[f1]", "1e5", "1_000", "0x10", "-1", "0", ".inf", ".nan", "on",
     "off", "jfi", "gini", "strict", "paper", "quick", "twin", "lockstep", "env", "nearest_landmark", "a.b:c",
     "os:system", "{a: 1}", "[1, 2", "!!python/object/apply:os.system [x]", "&a [*a]", "1e400", "9" * 40, "2020-01-01",
     *STRATEGIES]
)  # fmt: skip
NUMBER = st.sampled_from([0, 1, 2, 20, 300, 10**9, 10**30, 10**400, 1e-300, 1e-9, 0.5, 1e9, 1e300, math.inf, math.nan])
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NUMBER | NAME | MEANT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3),
    max_leaves=5,
)
OPTIONS = sorted({option.name for method in STRATEGIES.values() for option in fields(method.options)})
FLAT = sorted({*FIELDS, *(name for method in STRATEGIES.values() for name in flat_names(method.options))})
GIVEN = st.dictionaries(st.sampled_from(FLAT), NUMBER | MEANT, min_size=1, max_size=2) | st.dictionaries(
    st.sampled_from(FLAT) | NAME, VALUE, max_size=4
)
EDIT = st.tuples(st.sampled_from(["change", "insert", "drop", "cut", "repeat"]), st.floats(0, 1), st.binary(max_size=6))


def edited(content: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    """The content after these accidents."""
    for kind, where, new in edits:
        at = int(where * len(content))
        rest = {"change": content[at + len(new) :], "insert": content[at:], "drop": content[at + 1 + len(new) :]}
        if kind == "repeat":
            content = content[:at] + content[max(0, at - 20) :]
        elif kind == "cut":
            content = content[:at]
        else:
            content = content[:at] + (b"" if kind == "drop" else new) + rest[kind]
    return content


@dataclass
class Fuzz:
    """The properties, each a function that Hypothesis calls; in a folder of their own."""

    place: Path
    run: Path  # a finished run, to be copied and damaged
    team: Path  # a policy folder
    counts: Counter[str] = field(default_factory=Counter)

    def taken(self, work: Callable[[], Any]) -> Any:
        """What it gives, None if it was refused; anything else that it raises is what we are looking for."""
        try:
            found = work()
        except FairTestError as error:
            if not str(error):
                raise ValueError("an error without a word") from error
            self.counts["refused"] += 1
            return None
        self.counts["taken"] += 1
        return found

    def settings(self) -> Callable[[], None]:
        """What is taken can be written to the manifest and read back as it was."""

        @given(GIVEN, st.just({}) | st.dictionaries(st.sampled_from(OPTIONS) | NAME, VALUE, max_size=2))
        def test(values: dict[str, Any], options: dict[str, Any]) -> None:
            if options:
                values = {**values, "options": options}
            chosen = self.taken(lambda: configure(values))
            if chosen is None:
                return
            with contextlib.suppress(FairTestError):
                strategy_of(chosen).check_settings(chosen)
                text = json.dumps(chosen.as_dict(), allow_nan=False)
                assert configure(json.loads(text)).as_dict() == json.loads(text)
                assert strategy_of(chosen).chosen(chosen) is not None
                assert chosen.calibration >= 0

        return test

    def assignments(self) -> Callable[[], None]:
        """`--set` texts."""
        names = st.sampled_from([*FLAT, *(f"options.{name}" for name in OPTIONS), "options.", "options"]) | NAME
        words = st.builds(lambda name, value: f"{name}={value}", names, NAME | MEANT | VALUE) | NAME

        @given(st.lists(words, max_size=4))
        def test(texts: list[str]) -> None:
            values = self.taken(lambda: parse_assignments(texts))
            if values is not None:
                self.taken(lambda: configure(values))

        return test

    def policy_yaml(self) -> Callable[[], None]:
        whole = (self.team / "policy.yaml").read_bytes()
        known = [line.split(b":")[0].decode() for line in whole.splitlines() if line[:1].isalpha()]
        folder = self.place / "policy"
        folder.mkdir()
        written = st.dictionaries(st.sampled_from(known) | NAME, VALUE, max_size=20).map(
            lambda values: json.dumps(values).encode()
        )
        changed = st.builds(
            lambda name, value: whole + f"\n{name}: {json.dumps(value)}\n".encode(),
            st.sampled_from(known),
            st.integers(1, 50) | VALUE,
        )
        damaged = st.lists(EDIT, max_size=4).map(lambda edits: edited(whole, edits))

        @given(written | changed | damaged | st.binary(max_size=60))
        def test(content: bytes) -> None:
            (folder / "policy.yaml").write_bytes(content)
            record = self.taken(lambda: load_record(folder))
            if record is not None:
                assert record.n_agents >= 1
                assert isinstance(record.key, str)

        return test

    def failures_npz(self) -> Callable[[], None]:
        """With checksums no accident goes unnoticed; without them it is noticed or harmless."""
        whole = (self.run / "failures.npz").read_bytes()
        expected = load_failures(self.run / "failures.npz")
        folder = Path(shutil.copytree(self.run, self.place / "failures"))
        path, bare = folder / "failures.npz", self.place / "failures.npz"

        @given(st.lists(EDIT, min_size=1, max_size=3))
        def test(edits: list[tuple[str, float, bytes]]) -> None:
            content = edited(whole, edits)
            path.write_bytes(content)
            bare.write_bytes(content)
            for file in (path, bare):
                found = self.taken(lambda file=file: load_failures(file))  # type: ignore[misc]
                assert found is None or file == bare or content == whole
                if found is not None:
                    assert all(getattr(found, n).tobytes() == getattr(expected, n).tobytes() for n in ("states", "id"))

        return test

    def other_arrays(self) -> Callable[[], None]:
        """Archives that numpy reads, with arrays that do not fit together."""
        with np.load(self.run / "failures.npz") as file:
            columns = {name: file[name] for name in (*COPIED, "operator")}
        shape = st.lists(st.integers(0, 3), max_size=4).map(tuple)
        kinds = st.sampled_from(["f8", "f4", "i2", "i4", "i8", "u8", "U3", "S2", "c16", "?", "M8[s]", "i4,f4"])
        change = st.sampled_from(
            [lambda a: a[:0], lambda a: a[..., None], lambda a: a[:-1], lambda a: -a - 1, np.squeeze]
        )

        def changed(name: str, how: Any) -> np.ndarray:
            if not callable(how):
                return np.zeros(*how)
            before = columns.get(name, columns["id"])
            another: np.ndarray = before if before.dtype.kind == "U" else how(before)
            return another

        some = st.sampled_from([*sorted(columns), "position"])

        @given(
            st.dictionaries(some, st.tuples(shape, kinds) | change, max_size=2),
            st.sets(some, max_size=2),
            st.booleans(),
        )
        def test(changes: dict[str, Any], dropped: set[str], loose: bool) -> None:
            made = columns | {name: changed(name, how) for name, how in changes.items()}
            path = self.place / "arrays.npz"
            np.savez(path, **{name: array for name, array in made.items() if name not in dropped})
            if loose:
                with zipfile.ZipFile(path, "a") as archive:
                    archive.writestr(sorted(dropped or {"more"})[0], b"no array")
            self.taken(lambda: load_sample(path))
            found = self.taken(lambda: load_failures(path))
            if found is not None:
                found.executed_steps()
                assert len(found.take(found.start_step >= 0)) == len(found)

        return test

    def journal(self) -> Callable[[], None]:
        """Whatever happens to one line, the others are read."""
        path = self.place / "journal.jsonl"
        entries: list[dict[str, Any]] = [
            {"batch": n, "purpose": "execution", "episodes": 2, "steps": 4, "failures": 1, "batch_checksum": 1,
             "part_checksum": 2} for n in range(4)
        ]  # fmt: skip
        lines = [journal_line(entry) for entry in entries]

        @given(st.integers(0, 3), st.lists(EDIT, min_size=1, max_size=3), st.binary(max_size=40), VALUE)
        def test(which: int, edits: list[tuple[str, float, bytes]], garbage: bytes, value: Any) -> None:
            sealed = journal_line({**entries[which], "batch": value}) + journal_line({"x": value})
            damaged = edited(lines[which], edits) + b"\n" + garbage + b"\n" + sealed
            path.write_bytes(b"".join(lines[:which]) + damaged + b"".join(lines[which + 1 :]))
            found, _ = read_journal(path)
            self.counts["taken" if which in found else "refused"] += 1
            others = {n: entry for n, entry in enumerate(entries) if n != which}
            assert {n: entry for n, entry in found.items() if n in others} == others
            assert found.get(which) in (None, entries[which]) or value == which

        return test

    def commands(self) -> Callable[[], None]:
        """Command lines of real options with meant and unmeant values; nothing of it is long work."""
        here = self.place / "here"
        here.mkdir()
        shutil.copytree(self.team, here / "team")
        for name in ("run", "broken", "unfinished"):
            shutil.copytree(self.run, here / name)
        (here / "broken" / "manifest.json").write_text("{}")
        (here / "unfinished" / "summary.json").unlink()
        (here / "empty").mkdir()
        (here / "file").write_text("mine")
        runs, meant = 0, {path.name for path in here.iterdir()}

        kinds = [command_line(), command_line(), command_line(), small_run(), st.lists(NAME, max_size=3)]

        @given(st.integers(0, 4).flatmap(kinds.__getitem__))
        def test(argv: list[str]) -> None:
            nonlocal runs
            runs += 1
            argv = [word.replace("NEW", f"new-{runs}") for word in argv]
            said, told = io.StringIO(), io.StringIO()
            with contextlib.chdir(here), contextlib.redirect_stdout(told), contextlib.redirect_stderr(said):
                try:
                    code = fairtest(argv)
                except SystemExit as stop:  # argparse
                    code = stop.code  # type: ignore[assignment]
            for path in here.iterdir():  # `fairtest runs` would list them all, every time
                if path.name not in meant:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            assert code in (0, 1, 2), code
            assert code != 2 or said.getvalue(), "an error without a word"
            assert "Traceback" not in said.getvalue() + told.getvalue()
            self.counts[f"exit code {code}"] += 1

        return test


PLACES = ["nowhere", "file", "empty", "broken", "unfinished", "file/below", "", ".", "broken/failures.npz", "NEW"]
LONG = ("demo", "launch", "doctor")  # they train, or start other programs
WITH_RUN = ("runs", "compare", "gate", "export")  # quick on a finished run
HARMLESS = {
    "index": "gini", "epsilon": "0.3", "temperature": "2", "execution": "softmax", "coverage_bins": "3", "theta": "0.7",
    "distinct_distance": "0.5", "replay": "1", "fitness": "f1", "quantile": "0.3", "allocation": "env", "d": "5",
    "progress": "off", "engine": "lockstep", "seed": "4", "out": "elsewhere", "options": "{}", "preset": "strict",
}  # fmt: skip


def small_run() -> st.SearchStrategy[list[str]]:
    """Runs of a real team that end soon, whatever else is set."""
    value = NUMBER.map(shown) | MEANT | VALUE
    names = st.sampled_from(sorted(HARMLESS))
    sound = names.map(lambda name: ["--set", f"{name}={HARMLESS[name]}"])
    other = st.builds(lambda name, text: ["--set", f"{name}={text}"], names, value)
    changes = st.booleans().flatmap(lambda soundly: sound if soundly else other)
    little = ("batch=2", "workers=1", "report=false", "explain=0", "natural_episodes=5", "random_team=2")
    fixed = ["--method", "random", "--budget", "3", *(word for text in little for word in ("--set", text))]
    return st.lists(changes, max_size=2).map(
        lambda given: ["run", "--policy", "team", "--out", "NEW", *flat(given), *fixed]
    )


def shown(number: float) -> str:
    return f"{number:.3g}" if isinstance(number, float) else f"1{'0' * 400}" if number > 10**300 else str(number)


def command_line() -> st.SearchStrategy[list[str]]:
    """A command and some of its own options, with values of any kind."""
    return st.one_of([words(line, parser) for line, parser in leaves(make_parser(), []) if line[0] not in LONG])


def words(line: list[str], parser: argparse.ArgumentParser) -> st.SearchStrategy[list[str]]:
    place = st.sampled_from([*PLACES, "run"] if line[0] in WITH_RUN else PLACES)
    value = place | MEANT | NAME | st.integers().map(str) | st.floats().map(str)
    pieces: list[st.SearchStrategy[list[str]]] = [st.just(line)]
    for action in (action for action in parser._actions if action.dest != "help"):
        one: st.SearchStrategy[str] = value
        if action.choices:
            one = st.sampled_from([*map(str, action.choices), "other"])
        elif action.dest == "set":
            one = st.builds(lambda name, text: f"{name}={text}", st.sampled_from(FLAT) | NAME, value)
        elif action.type is Path or action.dest in ("out", "checkout"):
            one = place | place | NAME.filter(lambda text: "/" not in text and ".." not in text)
        elif action.type in (int, float):
            one = st.integers(0, 9).map(str) | NUMBER.map(shown) | value
        count = 0 if action.nargs == 0 else 1
        given_ = st.lists(one, min_size=count, max_size=count)
        if action.option_strings:
            name = action.option_strings[-1]
            some = given_.map(lambda values, name=name: [name, *values])  # type: ignore[misc]
            pieces.append(some if action.required else st.one_of(st.just([]), st.just([]), st.just([]), some))
        else:
            pieces.append(given_)
    return st.tuples(*pieces).map(flat)


def leaves(parser: argparse.ArgumentParser, words: list[str]) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        yield words, parser
    for name, below in inner[0].choices.items() if inner else ():
        yield from leaves(below, [*words, name])


def flat(pieces: Iterable[list[str]]) -> list[str]:
    return [word for piece in pieces for word in piece]


PROPERTIES = ("settings", "assignments", "policy_yaml", "failures_npz", "other_arrays", "journal", "commands")


@contextlib.contextmanager
def fuzzing(run: Path, team: Path) -> Iterator[Fuzz]:
    """The properties, far from the user's own files and checkouts."""
    before = {name: os.environ.get(name) for name in ("EPYMARL_HOME", "XDG_CONFIG_HOME", "HOME")}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ.pop("EPYMARL_HOME", None)
        os.environ |= {"XDG_CONFIG_HOME": f"{folder}/config", "HOME": folder}
        try:
            yield Fuzz(Path(folder), run, team)
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def try_out(fuzz: Fuzz, name: str, tries: int, seed: int | None) -> dict[str, int]:
    """How many inputs were taken and refused; raises what Hypothesis found."""
    fuzz.counts.clear()
    test = getattr(fuzz, name)()
    if seed is not None:
        test = hypothesis.seed(seed)(test)
    hypothesis.settings(
        max_examples=tries,
        derandomize=seed is None,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )(test)()
    return dict(sorted(fuzz.counts.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=20_000, help="inputs in all (20000)")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (0)")
    parser.add_argument("--only", nargs="+", choices=PROPERTIES, default=PROPERTIES, help="some of the properties")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    args = parser.parse_args()
    tests = Path(__file__).resolve().parents[1] / "tests"
    found: dict[str, dict[str, int]] = {}
    wrong = 0
    with fuzzing(tests / "fixtures" / "format-3", tests / "golden" / "team") as fuzz:
        for name in args.only:
            try:
                found[name] = try_out(fuzz, name, -(-args.tries // len(args.only)), args.seed)
            except Exception:
                traceback.print_exc()
                found[name], wrong = {**fuzz.counts, "WRONG": 1}, wrong + 1
            if not args.json:
                told = ", ".join(f"{count} {what}" for what, count in found[name].items())
                print(f"{name:<14}{told}", flush=True)
    print(json.dumps(found) if args.json else f"properties that do not hold: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
