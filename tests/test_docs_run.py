"""Every command and every Python block of the pages is executed, in order, page by page, in a small world.

Sizes are made small by the words of the command alone (`SMALLER`, `INSTEAD`, `ADDED`), and the shipped teams come with
few of their training episodes, tag's with short ones and without a memory. What is not executed here stands in
`NOT_HERE` with its reason, in `KINDS` with the training run of test_plugin.py that does the same, or is one of many
examples alike (`FEW`).
"""

from __future__ import annotations

import importlib
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from host_jobs import JOBS, Job
from support import TESTS, host_models, lean_copy, policy_folder
from test_docs import PAGES, ROOT, blocks, commands
from test_install import MINI

from epymarl_fairtest import commands as cli
from epymarl_fairtest.commands import demo
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.store.run import RunFolder

SMALLER = {
    "--budget": "220",
    "--seeds": "1",
    "--episodes": "60",
    "--steps": "200",
    "--failures": "5",
    "--jobs": "1",  # test_curve.py starts two
}  # what follows an option
INSTEAD = {  # words
    "explain=20": "explain=2",
    "pool=500": "pool=40",
    "offspring=50": "offspring=8",
    "predictor_episodes=500": "predictor_episodes=20",
    "calibration_episodes=500": "calibration_episodes=20",
    "options.cycle=25": "options.cycle=100",  # an epoch of GMT's training per so many executions
}
SIZES = "--set pool=40 --set offspring=8 --set predictor_episodes=20"
ADDED = {  # to a command that holds these words, unless it says the same itself
    "fairtest run --policy": "--budget 220 --set replay=20 --set explain=2",
    "--policy RUN/policy": "--set d=100 --set replay=20",  # one level instead of the best of three
    "fairtest gate --policy": "--budget 220",
    "fairtest calibrate": "--episodes 60",
    "fairtest choose": "--episodes 60",
    "fairtest explain runs/1": "--set explain=5",
    "fairtest repair": "--executions 100 --jobs 1 --weight 1",
    "fairtest policies check": "--episodes 20",
    "fairtest study": "--budget 220 --jobs 1 --methods fairtest random",
    "--preset paper": SIZES,
    "--accounting paper": SIZES,
    "theta=auto": SIZES,
    "benchmarks.exact": "--episodes 20 --tasks spread --agents mlp64 --host pymarlzoo",
    "benchmarks.simulators": "--worlds 64",
    "benchmarks.effect": "--variants random --seeds 1 --budget 220",
    "benchmarks.genetic": "--help",  # three whole runs, each in a process of its own
    "benchmarks.starts": "--starts 3 --times 2",
    "benchmarks.explain": "--teams mpe-qmix",
    "benchmarks.engine": "--help",  # its smallest measurement takes more than 20 s
    "benchmarks.run": "--help",  # so does this
    "benchmarks.compiling": "--help",  # and this: a cold cache takes half a minute
    "benchmarks.paper": "--help",  # at the paper's scale or not at all
    "benchmarks.growth": "--help",  # ten times that
}
# Behind the demo's own words:
DEMO = (
    "t_max=100 test_nepisode=2 fairtest_args.method=random fairtest_args.budget=60 fairtest_args.explain=2"
    " fairtest_args.random_team=10 fairtest_args.replay=5 fairtest_args.curve_episodes=0"
)

NOT_HERE = {  # how a command begins -> why it is not executed
    "make": "it makes the environment that this test runs in",
    "pip install": "needs a network, and changes the environment that this test runs in",
    "git clone": "needs a network",
    "cd": "commands are executed in one folder, in which every page finds what it names",
    "python tools/search_pictures.py": "it draws the pictures of the repository",
    "fairtest study .* --backend (dask|ray) --address": "needs a cluster; test_study.py starts both kinds",
    "fairtest study rq\\w+ --policies policies/(mpe-(iql|mappo) .*|pp-iql policies/pp-qmix) .*": "hours: test_study.py",
    ".* use_wandb=True": "needs an account",
    ".* env_args.key=my_world:Berries-v0": "test_extending.py makes this world and tests a team in it",
}
FEW = {  # page -> the settings whose examples are executed; test_docs.py reads and checks them all
    "settings.md": ("index", "execution", "allocation", "fitness", "preset"),
}
KINDS = {  # how a host is started, and on what -> the training run of test_plugin.py that does so
    "python src/main.py": "epymarl/installed",
    "fairtest launch -- src/main.py": "epymarl/qmix-spread",
    "fairtest launch -- pymarlzooplus.main": "zoo/qmix-foraging",
    "src/main.py fairtest_lbf": "epymarl/iql-foraging",
    "src/main.py fairtest_pp": "epymarl/iql-tag",
    "src/main.py lbforaging:Foraging-8x8-3p-3f-v3": "epymarl/installed",
    "src/main.py pz-mpe-simple-spread-v3": "epymarl/stock-spread-allocated",
    "src/main.py pz-mpe-simple-tag-v3": "epymarl/stock-tag",
    "src/main.py evaluate=True": "epymarl/evaluate",
    "pymarlzooplus.main fairtest_lbf": "zoo/qmix-foraging",
    "pymarlzooplus.main fairtest_pp": "zoo/qmix-tag-parallel",
}
BLOCKS_ELSEWHERE = {  # page -> the test that executes its Python blocks
    "runs.md": "test_docs.py: test_the_shown_policy_strategy_and_python_work_together",
    "architecture.md": "test_docs.py: test_the_shown_policy_strategy_and_python_work_together",
    "extending.md": "test_extending.py: test_the_shown_strategy_runs_with_its_option",
}
DECIDES = {"gate", "policies", "doctor", "choose", "repair"}  # 1 is an answer of these, 3 of the last
ONCE: list[list[str]] = []  # benchmarks and exported tests that were executed: some stand on two pages
RUNS: dict[tuple[str, ...], Path] = {}  # runs that were made: the same with another name is a copy
A_FAILURE = "4711"  # an id that the pages show; each run has its own
WRITES = ("--out", "--junit", "--figure", "--pytest")


def shown(page: Path) -> Iterator[list[str]]:
    """The commands of a page: of its shell blocks, and of the steps of its workflows."""
    yield from commands(page)
    for block in blocks(page, "yaml"):
        for job in yaml.safe_load(block).get("jobs", {}).values():
            steps = (step["run"].replace("${{ github.sha }}", "COMMIT") for step in job["steps"] if "run" in step)
            yield from map(shlex.split, steps)


SHOWN = {page: list(shown(page)) for page in PAGES}


def host_traits(words: list[str]) -> set[str]:
    """How a host is started and on what, as the keys of KINDS say it; nothing for other commands."""
    started = next((key for key in KINDS if " ".join(words).startswith(f"{key} --config=")), None)
    if started is None:
        return set()
    program = started.split()[-1]
    named = dict(word.split("=", 1) for word in words if "=" in word)
    environment = named.get("env_args.key", named["--env-config"])
    evaluated = {f"{program} evaluate=True"} if named.get("evaluate") == "True" else set()
    return {started, f"{program} {environment}"} | evaluated


def reason_not_here(words: list[str]) -> str | None:
    line = " ".join(words)
    return next((reason for start, reason in NOT_HERE.items() if re.match(rf"{start}( |$)", line)), None)


def one_of_many(page: Path, words: list[str]) -> bool:
    """An example of a setting that is not among the few to be executed?"""
    given = [word.partition("=")[0] for word in words if "=" in word] + [word.removeprefix("--") for word in words]
    return page.name in FEW and words[:2] == ["fairtest", "run"] and not set(given) & set(FEW[page.name])


def made_small(words: list[str]) -> list[str]:
    words = [INSTEAD.get(word, word) for word in words]
    words = [SMALLER.get(before, word) for before, word in zip(["", *words], words, strict=False)]
    if "allocation=prey_distance" in words:  # RUN/policy stands for a team that this makes sense for
        words = [word.replace("RUN/policy", "TAG/policy") for word in words]
    for holds, added in ADDED.items():
        if holds in " ".join(words):
            for part in re.findall(r"--\S+(?: (?!--)\S+)*", added):
                option, *values = part.split()
                says = values[0].partition("=")[0] + "=" if option == "--set" else option
                if not any(word.startswith(says) for word in words):
                    words += [option, *values]
    return words


def fairtest(line: str) -> int:
    return cli.main(line.split())


# --- the small world ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages take for granted: a clone with its teams, earlier runs, an EPyMARL checkout."""
    root = tmp_path_factory.mktemp("world")
    clone = root / "clone"
    clone.mkdir()
    for checkout in (clone / "CHECKOUT", root / "epymarl"):
        for name, text in MINI.items():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_text(text)
    for shipped in (ROOT / "policies").iterdir():
        if not shipped.name.startswith("pp-"):
            lean_copy(shipped, clone / "policies" / shipped.name)
    for tag in ("pp-iql", "pp-qmix"):  # a team with a memory would take several times as long
        lean_copy(ROOT / "policies" / "pp-qmix", clone / "policies" / tag)
        record = clone / "policies" / tag / "policy.yaml"
        record.write_text(record.read_text().replace("time_limit: 50\n", "time_limit: 12\n"))
    team = policy_folder(clone / "team", time_limit=8)
    policy_folder(clone / "TAG" / "policy", task="tag", time_limit=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(clone)
        for seed, (name, method) in enumerate(
            {"RUN": "fairtest", "runs/main": "random", "runs/candidate": "random", "runs/1": "fairtest"}.items()
        ):
            words = f"--method {method} --budget 220 --set replay=5 --seed {seed} --out {name}"
            assert fairtest(f"run --policy team {words}") == 0
    shutil.copytree(team, clone / "RUN" / "policy")
    results = clone / "results"
    models = host_models(results, "qmix")
    shutil.copytree(clone / "RUN", results / "fairtest" / "RUN")
    shutil.copytree(team, results / "fairtest" / "RUN" / "curve" / "25")  # kept while it learned
    (results / "models" / "NAME").symlink_to(models.name)
    (results / "sacred" / "qmix" / "KEY").symlink_to("epymarl_fairtest:mpe-spread-v0")
    logged = results / "sacred" / "qmix" / "epymarl_fairtest:lbforaging-v0" / "1" / "metrics.json"
    logged.parent.mkdir(parents=True)
    metric = {"steps": [100], "timestamps": ["2026-11-16T09:13:35"], "values": [3]}
    logged.write_text(json.dumps({"fairtest_failures": metric, "loss": metric}))
    return root


@pytest.fixture
def world(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in, and a register of checkouts of its own."""
    shutil.copytree(prepared, tmp_path / "world", symlinks=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("EPYMARL_HOME", raising=False)
    monkeypatch.chdir(tmp_path / "world" / "clone")
    monkeypatch.setattr(demo, "TRAINING", [*demo.TRAINING, *DEMO.split()])
    monkeypatch.setattr(demo, "TEST", {**demo.TEST, "budget": 300, "explain": 2})
    return Path.cwd()


# --- the commands -------------------------------------------------------------------------------------


def execute(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    program, arguments = words[0], words[1:]
    if program == "python" and not words[1].startswith("tools/"):
        if sorted(words) in ONCE:
            return
        ONCE.append(sorted(words))
    made = [Path(arguments[arguments.index(option) + 1]) for option in WRITES if option in arguments]
    if program == "fairtest":
        if "--resume" in arguments:
            interrupt(Path(arguments[arguments.index("--resume") + 1]))
        if arguments[0] == "run":  # the reader of several examples takes another name for each
            shutil.rmtree(next(iter(made), Path("-")), ignore_errors=True)
        code = run_once(arguments, *made) if arguments[0] == "run" and made else cli.main(arguments)
        assert code in ({0, 1, 3} if arguments[0] in DECIDES else {0})
        if arguments[0] == "choose" and code == 1:  # nobody is chosen, nothing is copied
            assert not any(path.exists() for path in made)
            return
    elif words[:3] == ["python", "-m", "pytest"]:
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
        assert done.returncode == 1, done.stdout + done.stderr  # the team that was exported from fails
        assert "AssertionError: failure" in done.stdout
    elif words[0] == "python" and words[1].startswith("tools/"):
        with monkeypatch.context() as patch:
            patch.syspath_prepend(ROOT)
            patch.setattr(sys, "argv", words[1:])
            ended(partial(tool, ROOT / words[1]))
    elif words[:2] == ["python", "-m"] and words[2].startswith("benchmarks."):
        with monkeypatch.context() as patch:
            patch.syspath_prepend(ROOT)
            patch.setattr(sys, "argv", words[2:])
            ended(importlib.import_module(words[2]).main)
    else:
        pytest.fail("nobody knows how to execute this")
    assert all(path.exists() for path in made)


def run_once(arguments: list[str], out: Path) -> int:
    """Every page has the same teams in its world."""
    key = tuple(word for word in arguments if word not in ("--out", str(out)))
    if key in RUNS:
        shutil.copytree(RUNS[key], out)
        return 0
    code = cli.main(arguments)
    if code == 0 and not arguments[arguments.index("--policy") + 1].startswith("repaired"):
        RUNS[key] = shutil.copytree(out, Path.cwd().parent / "runs" / str(len(RUNS)))  # pages write over theirs
    return code


def ended(program: Callable[[], Any]) -> None:
    """It says that all went well, by what it returns or as it leaves."""
    try:
        code = program()
    except SystemExit as end:
        code = end.code
    assert not code


def tool(path: Path) -> None:
    runpy.run_path(str(path), run_name="__main__")


def some_failure() -> int:
    return int(load_failures(Path("runs/1/failures.npz")).id[0])


def interrupt(run: Path) -> None:
    """Make `run` anew, and stop it when only its end is missing."""
    shutil.rmtree(run, ignore_errors=True)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "finish", stop)
        assert fairtest(f"run --policy team --method random --budget 60 --out {run}") == 130
    shutil.copytree("team", run / "policy")  # as in a host


@pytest.mark.docs
@pytest.mark.parametrize(
    "page", [page for page in PAGES if SHOWN[page] or blocks(page, "python")], ids=lambda p: p.stem
)
def test_what_the_page_shows_can_be_executed(page: Path, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in SHOWN[page]:
        if reason_not_here(words) or host_traits(words) or one_of_many(page, words):
            continue
        small = [str(some_failure()) if word == A_FAILURE else word for word in made_small(words)]
        print(f"\n$ {shlex.join(small)}", flush=True)  # pytest shows it where something fails
        execute(small, monkeypatch)
    if page.name not in BLOCKS_ELSEWHERE:
        for block in blocks(page, "python"):
            exec(compile(block.replace("budget=1000", "budget=300"), page.name, "exec"), {})


@pytest.mark.docs
def test_a_command_that_cannot_be_executed_is_noticed(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.fail.Exception, match="nobody knows"):
        execute(["curl", "example.org"], monkeypatch)
    with pytest.raises(AssertionError):
        execute(shlex.split("fairtest run --policy nowhere --out runs/1"), monkeypatch)
    unknown = host_traits(shlex.split("python src/main.py --config=qmix --env-config=fairtest_new with fairtest=True"))
    assert unknown - set(KINDS) == {"src/main.py fairtest_new"}


# --- what is executed elsewhere, or not at all --------------------------------------------------------


def test_every_start_of_a_host_is_of_a_kind_that_is_trained() -> None:
    lines = [words for page in PAGES for words in SHOWN[page] if not reason_not_here(words)]
    hosted = [words for words in lines if {"src/main.py", "pymarlzooplus.main"} & set(words)]
    assert len(hosted) > 70
    for words in hosted:
        assert host_traits(words) <= set(KINDS), f"no training run does the same: {shlex.join(words)}"
        assert host_traits(words)
    assert {trait for words in hosted for trait in host_traits(words)} == set(KINDS)


def words_of(job: Job) -> list[str]:
    program = "src/main.py" if job.host == "epymarl" else "pymarlzooplus.main"
    return [*(["python"] if job.installed else ["fairtest", "launch", "--"]), program, *job.arguments.split()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_run_of_a_kind_exists_and_is_looked_at(kind: str) -> None:
    assert kind in host_traits(words_of(JOBS[KINDS[kind]]))
    assert f'"{KINDS[kind]}"' in (TESTS / "test_plugin.py").read_text()


@pytest.mark.parametrize("page", FEW)
def test_of_many_examples_a_few_are_executed(page: str) -> None:
    (path,) = (path for path in PAGES if path.name == page)
    examples = [words for words in SHOWN[path] if words[:2] == ["fairtest", "run"]]
    executed = [words for words in examples if not one_of_many(path, words)]
    assert len(FEW[page]) <= len(executed) < len(examples)


@pytest.mark.parametrize("start", NOT_HERE)
def test_no_reason_is_left_over(start: str) -> None:
    lines = [" ".join(words) for page in PAGES for words in SHOWN[page]]
    assert any(re.match(rf"{start}( |$)", line) for line in lines)


@pytest.mark.parametrize("page", BLOCKS_ELSEWHERE)
def test_the_test_that_executes_a_pages_blocks_exists(page: str) -> None:
    file, _, name = BLOCKS_ELSEWHERE[page].partition(": ")
    assert f"def {name}(" in (TESTS / file).read_text()
