"""What the pages say is true: links lead somewhere, commands parse, settings exist, code blocks run."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
import yaml

from epymarl_fairtest import commands as cli
from epymarl_fairtest.campaign.summary import summary_table
from epymarl_fairtest.commands.parser import make_parser
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.host.sacred_log import SacredLog
from epymarl_fairtest.settings import (
    FIELDS,
    NoOptions,
    fields_of,
    flat_names,
    parse_assignment,
    parse_assignments,
    presets,
)
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import STRATEGIES, configure, strategy_of
from epymarl_fairtest.strategies.contract import Context, Search
from epymarl_fairtest.strategies.fairtest.plan import plan_of
from epymarl_fairtest.study.rows import COLUMNS, METRICS, to_csv
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.team.checkpoint import expected_shapes, load_record

ROOT = Path(__file__).resolve().parent.parent
README, SETTINGS = ROOT / "README.md", ROOT / "docs" / "settings.md"
ARCHITECTURE, METHOD = ROOT / "docs" / "architecture.md", ROOT / "docs" / "method.md"
RUNS, SAVED = ROOT / "docs" / "runs.md", ROOT / "docs" / "saved-teams.md"
BASELINES, LOGGING = ROOT / "docs" / "baselines.md", ROOT / "docs" / "logging.md"
PLAN = (ROOT / "docs" / "decisions" / "009-sizes-from-the-budget.md").read_text(encoding="utf-8")
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOLDERS = "epymarl_fairtest|config|src_patches|tests|docs|benchmarks|tools"
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def blocks(page: Path, language: str) -> list[str]:
    return [body for name, body in BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def prose(page: Path) -> str:
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every command line in the page's shell blocks."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words


ALL_COMMANDS = [(page, words) for page in PAGES for words in commands(page)]
every_command = pytest.mark.parametrize(
    ("page", "words"), ALL_COMMANDS, ids=[f"{page.name}: {' '.join(words)[:90]}" for page, words in ALL_COMMANDS]
)


# --- links and paths ---


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as they are made from their text."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?://", target):
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), f"{target} does not exist"
        assert not fragment or fragment in anchors(file), f"{target}: there is no such heading"


@every_page
def test_files_that_are_named_exist(page: Path) -> None:
    for code in inline_code(page):
        if re.fullmatch(rf"(?:{FOLDERS})/[\w./-]+", code):
            assert (ROOT / code).exists(), f"{code} does not exist"


@every_page
def test_no_page_names_a_place_on_somebodys_machine(page: Path) -> None:
    found = re.search(r"(?<![\w.])/(?:home|root|tmp|work|usr|Users)/|pypi\.org|pythonhosted", page.read_text("utf-8"))
    assert found is None, f"{found.group()!r} stands in {page.name}" if found else ""


def test_the_site_has_every_page() -> None:
    """`make docs` refuses a page that nobody can find; decisions are listed on one of their own."""
    named = set(re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    made = {"index.md", "CONTRIBUTING.md", "CHANGELOG.md", "reference.md", "decisions.md", "gallery.md"}
    assert named == {page.name for page in (ROOT / "docs").glob("*.md")} | made


# --- commands ---


def parser() -> argparse.ArgumentParser:
    return make_parser()


def subcommands() -> set[str]:
    actions = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    return {name for action in actions for name in action.choices}


def parsed(words: list[str]) -> argparse.Namespace:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parser().parse_args(words)
    except SystemExit:
        pytest.fail(f"the parser refuses: fairtest {' '.join(words)}\n{said.getvalue()}")


def test_there_are_commands_to_check() -> None:
    programs = {words[0] for _, words in ALL_COMMANDS}
    assert {"make", "fairtest", "python", "pip", "cd", "git"} == programs


@every_command
def test_a_shown_command_is_accepted(page: Path, words: list[str]) -> None:
    program, arguments = words[0], words[1:]
    if program == "fairtest":
        args = parsed(arguments)
        if arguments[0] == "run":
            assert args.resume or (args.policy and args.out)
        if arguments[0] in ("run", "calibrate", "predictor"):
            check_team_command(args)
        if arguments[0] == "launch":
            command = [word for word in args.command if word != "--"]
            assert command[0] in ("src/main.py", "pymarlzooplus.main")
            check_host_command(command[1:])
    elif program == "git":
        assert arguments[:2] == ["clone", "https://github.com/uoe-agents/epymarl.git"]
    elif program == "python" and arguments[:2] == ["-m", "pytest"]:
        exported = [words[words.index("--pytest") + 1] for words in commands(page) if "--pytest" in words]
        assert arguments[2:] == exported, "only what the page exports"
    elif program == "python" and arguments[0] == "-m":
        check_benchmark(*arguments[1:])
    elif program == "python" and arguments[0].startswith("tools/"):
        assert (ROOT / arguments[0]).is_file()
    elif program == "python":
        assert arguments[0] == "src/main.py"
        check_host_command(arguments[1:])
    elif program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert arguments[0] in targets
    elif program == "pip":
        check_pip(arguments)


def check_team_command(args: argparse.Namespace) -> None:
    given = parse_assignments(args.set)
    named = {name: getattr(args, name, None) for name in ("method", "budget", "seed", "preset", "quantile")}
    check_setting({**given, **{name: value for name, value in named.items() if value is not None}})


def check_benchmark(module: str, *options: str) -> None:
    package, _, name = module.partition(".")
    assert package == "benchmarks"
    source = (ROOT / "benchmarks" / f"{name}.py").read_text()
    for option in options:
        assert not option.startswith("--") or f'"{option}"' in source, f"benchmarks.{name} has no option {option}"


def check_host_command(words: list[str]) -> None:
    before, after = words[: words.index("with")], words[words.index("with") + 1 :]
    options = dict(word.split("=", 1) for word in before)
    assert set(options) == {"--config", "--env-config"}
    assert options["--config"] in ("qmix", "vdn", "iql")
    env_config = options["--env-config"]
    assert env_config == "gymma" or (shipped("config") / "envs" / f"{env_config}.yaml").is_file()
    assert ("env_args.key" in dict(word.split("=", 1) for word in after)) == (env_config == "gymma")
    assert "fairtest=True" in after
    ours = {"fairtest", "fairtest_args", "env_args"}
    theirs = {"t_max", "evaluate", "checkpoint_path", "use_wandb", "wandb_team", "wandb_project"}
    assert {word.split("=", 1)[0].split(".")[0] for word in after} <= ours | theirs


def check_pip(arguments: list[str]) -> None:
    assert arguments[0] == "install"
    for word in arguments[1:]:
        if word.endswith(".txt"):
            assert (ROOT / word).is_file()
        for extra in re.findall(r"^\.\[(\w+)\]$", word):
            assert f'"{extra}": [' in (ROOT / "setup.py").read_text()


@every_page
def test_a_command_named_in_the_text_exists(page: Path) -> None:
    for code in inline_code(page):
        name = re.match(r"fairtest ([a-z]+)\b", code)
        assert name is None or name.group(1) in subcommands(), f"`{code}`: there is no such command"
        target = re.fullmatch(r"make (\w+)", code)
        assert target is None or f"\n{target.group(1)}:" in (ROOT / "Makefile").read_text(), f"`{code}`"


# --- settings ---


def as_written(value: Any) -> str:
    """A default as config/fairtest.yaml writes it."""
    if value == {}:
        return "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(value)}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def defaults() -> dict[str, Any]:
    return yaml.safe_load((shipped("config") / "fairtest.yaml").read_text())


def check_setting(given: dict[str, Any]) -> None:
    options = {name.removeprefix("options."): given[name] for name in given if name.startswith("options.")}
    flat = {name: given[name] for name in given if not name.startswith("options.")}
    try:
        chosen = configure({**flat, **({"options": options} if options else {})})
        strategy_of(chosen).check_settings(chosen)
    except FairTestError as error:
        pytest.fail(str(error))


def as_sacred_reads(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@every_page
def test_every_shown_setting_exists_and_has_an_allowed_value(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():  # what stands in one line may need each other, as index and theta do
        found = re.findall(r"fairtest_args\.([\w.]+)=([^\s`)]+)", line)
        for group in without_repeats([(name, as_sacred_reads(value.rstrip(".,"))) for name, value in found]):
            check_setting(group)
    for line in prose(page).splitlines():  # the commands in blocks are checked as a whole
        assignments = re.findall(r"--set ([\w.]+=[^\s`)]+)", line)
        for group in without_repeats([parse_assignment(text.rstrip(".,")) for text in assignments]):
            check_setting(group)


def without_repeats(pairs: list[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    """The pairs as settings; a name that comes again begins new ones, so that none is overlooked."""
    group: dict[str, Any] = {}
    for name, value in pairs:
        if name.rpartition(".")[2] == "NAME" and value == "VALUE":
            continue
        if name in group:
            yield group
            group = {}
        group[name] = value
    if group:
        yield group


def sections() -> dict[str, str]:
    page = SETTINGS.read_text(encoding="utf-8").split("\n## Options of the methods\n")[0]
    parts = re.split(r"^## `(\w+)`$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


FLAT = {  # options that may be given like settings, as the strategies that have them define them
    name: fields_of(strategy.options)[name]
    for strategy in list(STRATEGIES.values())
    for name in fields_of(strategy.options)
    if name in flat_names(strategy.options)
}
SHOWN = [*FIELDS, *FLAT]


def test_the_settings_page_has_every_setting_once() -> None:
    assert sorted(sections()) == sorted(SHOWN)
    assert list(sections())[: len(FIELDS)] == list(FIELDS)
    assert len(re.findall(r"^## `", SETTINGS.read_text(encoding="utf-8"), re.MULTILINE)) == len(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_the_settings_page_tells_default_rule_and_presets(name: str) -> None:
    told = dict(re.findall(r"^- (Default|Allowed|Presets): (.+)$", sections()[name], re.MULTILINE))
    assert told["Default"] == f"`{as_written(defaults()[name] if name in FIELDS else FLAT[name].default)}`"
    choices = {"preset": presets(), "method": list(STRATEGIES)}
    if name in choices:
        assert sorted(told["Allowed"].split(", ")) == sorted(f"`{choice}`" for choice in choices[name])
    else:
        assert told["Allowed"] == (FIELDS | FLAT)[name].metadata["rule"].allowed
    changes = {}
    for preset in presets():
        values = yaml.safe_load((shipped("config") / "presets" / f"{preset}.yaml").read_text())
        if name in values:
            changes[preset] = as_written(values[name])
    expected = {f"`{preset}` {value}" for preset, value in changes.items()} or {"none change it"}
    assert set(told["Presets"].split(", ")) == expected


@pytest.mark.parametrize("name", SHOWN)
def test_the_settings_page_has_an_example_for_both_hosts_and_for_run(name: str) -> None:
    block = "".join(re.findall(r"^```sh\n(.*?)^```$", sections()[name], re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    epymarl, zoo, saved = block.strip().splitlines()
    assert epymarl.startswith("python src/main.py ")
    assert re.search(rf" fairtest_args\.{name}(\.\w+)?=", epymarl)
    assert zoo.startswith("fairtest launch -- pymarlzooplus.main ")
    assert re.search(rf" fairtest_args\.{name}(\.\w+)?=", zoo)
    assert saved.startswith("fairtest run ")
    assert re.search(rf" --set {name}(\.\w+)?=| --{name} ", saved)


def test_the_settings_page_is_the_one_that_the_schema_gives() -> None:
    """`python tools/settings_page.py --write` mends it."""
    command = [sys.executable, str(ROOT / "tools" / "settings_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_results_page_holds_the_tables_that_the_data_gives() -> None:
    """`python tools/results_page.py --write` mends it."""
    command = [sys.executable, str(ROOT / "tools" / "results_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    published = {path.stem for path in (ROOT / "docs" / "studies").glob("*.csv")}
    assert published == set(re.findall(r"^<!-- (rq\S+) -->$", (ROOT / "docs" / "tables.md").read_text(), re.MULTILINE))


@pytest.mark.slow
def test_the_page_of_repairs_holds_the_table_that_the_data_gives() -> None:
    """`python tools/repair_page.py --write` mends it."""
    command = [sys.executable, str(ROOT / "tools" / "repair_page.py"), "--check"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_the_check_of_the_results_page_sees_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    tool = importlib.import_module("results_page")
    page = tmp_path / "tables.md"
    page.write_text((ROOT / "docs" / "tables.md").read_text().replace("300 runs, ", "301 runs, ", 1))
    monkeypatch.setattr(tool, "PAGES", (page,))
    for option, code in (("--check", 1), ("--write", 0), ("--check", 0)):
        monkeypatch.setattr(sys, "argv", ["results_page.py", option])
        assert tool.main() == code
    assert page.read_text() == (ROOT / "docs" / "tables.md").read_text()


def test_a_study_of_all_methods_is_ranked_with_as_many_seeds_as_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    tool = importlib.import_module("results_page")
    known = {"study": "rq1", "accounting": "strict", "budget": 1000, "cpu_seconds": 2.0, "distinct_area": 1.0}
    rows = []
    for variant, runs in {"random": [1, 2], "scout": [30, 50], "fairtest:candidates=random": [4]}.items():
        for seed, count in enumerate(runs):
            counts = dict.fromkeys(METRICS, count) | {"coverage": count / 100}
            rows.append(
                dict.fromkeys(COLUMNS) | known | counts | {"policy": "pp-iql", "variant": variant, "seed": seed}
            )
    (tmp_path / "rq1-1000.csv").write_text(to_csv(rows, list(COLUMNS)))
    told = tool.tables(tmp_path / "rq1-1000.csv")
    assert told.startswith("1,000 episodes, all charged; 1 to 2 seeds: not all runs are there.")
    assert "| Distinct failures | **Scout**, 10.00 x FairTest (random) (7e-01, 1.00L) |" in told
    assert "| Random | 26.67 (3e-01, 1.00L) |" in told
    assert "| Coverage | 0.300 / 0.015 |" in told, "the lowest run beside the highest mean of the others"


def test_rows_of_a_study_that_was_run_seed_by_seed_are_published_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    tool, published, new = importlib.import_module("results_page"), tmp_path / "studies" / "a.csv", tmp_path / "new.csv"
    header = "policy,variant,seed,budget,failures\n"
    for rows in (
        "pp-iql,scout,1,9,5\npp-iql,random,1,9,1\n",
        "pp-iql,scout,0,9,4\nmpe-iql,random,0,9,3\npp-iql,random,1,9,2\n",
    ):
        new.write_text(header + rows)
        tool.take(new, published)
    together = ["mpe-iql,random,0,9,3", "pp-iql,scout,0,9,4", "pp-iql,scout,1,9,5", "pp-iql,random,1,9,2"]
    assert published.read_text().splitlines() == [header.strip(), *together]
    new.write_text(header + "pp-iql,scout,2,10,5\n")
    with pytest.raises(SystemExit, match="another study"):
        tool.take(new, published)


def test_the_search_page_explains_every_option_of_scout() -> None:
    rows = prose(ROOT / "docs" / "search.md").split("\n## Options\n")[1]
    named = [
        name for cell in re.findall(r"^\| (`[^|]+) \|", rows, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    ]
    assert sorted(named) == sorted(fields_of(STRATEGIES["scout"].options))


def test_the_check_of_the_settings_page_sees_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    tool = importlib.import_module("settings_page")
    page = tmp_path / "settings.md"
    page.write_text(SETTINGS.read_text(encoding="utf-8").replace("- Default: `0.05`", "- Default: `0.5`", 1))
    monkeypatch.setattr(tool, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["settings_page.py", "--check"])
    assert tool.main() == 1
    assert "+- Default: `0.05`" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["settings_page.py", "--write"])
    assert tool.main() == 0
    assert page.read_bytes() == SETTINGS.read_bytes()


def methods() -> dict[str, str]:
    """The sections of the methods' page, by the name in brackets."""
    parts = re.split(r"^## .+ \(`(\w+)`\)$", BASELINES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_method_but_ours_has_a_section_and_a_row() -> None:
    others = set(STRATEGIES) - {"fairtest"}
    assert set(methods()) == others
    told = re.findall(r"^\| `(\w+)` \| .+ \| ([^|]+) \| [^|]+ \|$", prose(BASELINES).split("\n## ")[0], re.MULTILINE)
    assert {name for name, _ in told} == others
    for name, needs in told:
        assert set(re.findall(r"`(\w+)`", needs)) == set(STRATEGIES[name].needs), name


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "fairtest"])
def test_a_methods_table_has_its_options_with_defaults_and_meanings(name: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (.+) \|$", methods()[name], re.MULTILINE)
    options = fields(STRATEGIES[name].options)
    assert bool(options) == (STRATEGIES[name].options is not NoOptions)
    assert rows == [(option.name, as_written(option.default), option.metadata["doc"]) for option in options]


def test_the_method_page_names_settings_that_exist_and_every_one_of_the_search() -> None:
    rows = prose(METHOD).split("\n## Open points and our decisions\n")[1].split("\n## ")[0]
    cells = [row.split(" | ")[-1] for row in re.findall(r"^\| (?!open point|---).+\|$", rows, re.MULTILINE)]
    assert len(cells) > 20
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    searching = set(fields_of(STRATEGIES["fairtest"].options))
    assert "generations" in searching
    assert named <= set(FIELDS) | searching
    assert searching <= named


@pytest.mark.parametrize("preset", presets())
def test_what_the_pages_say_about_sizes_is_what_is_planned(preset: str) -> None:
    settings = configure({"preset": preset})
    plan = plan_of(settings, strategy_of(settings).chosen(settings))
    assert (plan.rounds, plan.generations) == (3, 3)
    if preset == "quick":
        assert (plan.pool, plan.offspring) == (270, 10), "mutants are a tenth of a round"
        settings = configure({"preset": preset, "candidates": "random"})
        plan = plan_of(settings, strategy_of(settings).chosen(settings))
    assert plan.pool == 5 * plan.offspring
    assert plan.predictor == plan.pool // 3
    if preset == "quick":
        sentence = r"shows (\d+) episodes for .+, 3 x (\d+) candidates, 3 x 3 x (\d+) mutants, .+\nremaining (\d+) "
        told = re.search(sentence, PLAN)
        assert told is not None
        predictor, pool, offspring, left = map(int, told.groups())
        assert (predictor, pool, offspring) == (plan.predictor, plan.pool, plan.offspring)
        assert left == 1000 - plan.cost("strict", 3)
    if preset == "paper":
        assert (plan.pool, plan.population, plan.offspring, plan.predictor) == (7500, 1500, 1500, 2500)
        assert plan.cost("paper", 3) == 18_000


def test_the_shown_thresholds_and_limits_are_those_of_the_tasks() -> None:
    rows = re.findall(
        r"^\| `\w+` \| `(fairtest_\w+)` \| `([^`]+)`.*\| ([\d.]+) \| (\d+) \|$", prose(RUNS), re.MULTILINE
    )
    assert len(rows) == 3
    for config, key, theta, steps in rows:
        env_args = yaml.safe_load((shipped("config") / "envs" / f"{config}.yaml").read_text())["env_args"]
        task = task_for(gymnasium.make(key, disable_env_checker=True))
        assert (env_args["key"], env_args["time_limit"], task.theta) == (key, int(steps), float(theta))


# --- README ---


def test_the_readme_is_short_and_shows_a_small_film() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert (ROOT / picture).read_bytes().startswith(b"GIF8")
    assert (ROOT / picture).stat().st_size < 400_000


def test_the_readmes_lines_are_of_the_table_that_is_explained() -> None:
    (lines,) = blocks(README, "text")
    (table,) = (block for block in blocks(RUNS, "text") if "unfair episodes" in block)
    whole = table.splitlines()
    assert 8 <= len(lines.splitlines()) <= 12
    assert all(line in whole for line in lines.splitlines())
    command = next(words for words in commands(README) if words[:2] == ["fairtest", "run"])
    assert command in list(commands(RUNS))


# --- blocks ---


@every_page
def test_every_yaml_block_parses(page: Path) -> None:
    for block in blocks(page, "yaml"):
        assert isinstance(yaml.safe_load(block), dict)


def test_the_shown_policy_yaml_describes_a_policy(tmp_path: Path) -> None:
    (text,) = blocks(SAVED, "yaml")
    (tmp_path / "policy.yaml").write_text(text)
    assert load_record(tmp_path).time_limit == 50


def test_the_shown_preset_is_the_shipped_one() -> None:
    (text,) = blocks(SETTINGS, "yaml")
    assert yaml.safe_load(text) == yaml.safe_load((shipped("config") / "presets" / "paper.yaml").read_text())


@every_page
def test_every_block_says_what_it_is(page: Path) -> None:
    known = {"sh", "text", "toml", "yaml", "python"}
    assert {name for name, _ in BLOCK.findall(page.read_text(encoding="utf-8"))} <= known


def test_the_shown_policy_strategy_and_python_work_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shown policy.yaml, architecture's strategy, `fairtest run`, and the shown way to read the failures."""
    monkeypatch.chdir(tmp_path)
    folder = Path("RUN/policy")
    folder.mkdir(parents=True)
    (folder / "policy.yaml").write_text(blocks(SAVED, "yaml")[0])
    shapes = expected_shapes(load_record(folder), separate=False)
    torch.save({name: torch.zeros(shape) for name, shape in shapes.items()}, folder / "agent.th")

    shown: dict[str, Any] = {}
    for block in blocks(ARCHITECTURE, "python"):
        exec(compile(block, "docs/architecture.md", "exec"), shown)
    asked: list[np.ndarray] = []

    def listened_to(context: Context) -> Search:
        search = shown["STRATEGY"].search(context)
        request = next(search)
        while True:
            asked.append(request.tests.root_seed)
            request = search.send((yield request))

    words = "run --policy RUN/policy --method second_look --budget 150 --seed 0 --set epsilon=1.0 --out runs/1 --json"
    with STRATEGIES.having(replace(shown["STRATEGY"], search=listened_to)):
        assert cli.main(words.split()) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["executed_episodes"] == 150
    assert set(summary) == told_keys()
    first, again, *_ = asked
    assert 0 < len(again) < len(first)
    assert set(again) < set(first)

    for block in blocks(RUNS, "python"):
        exec(compile(block, "docs/runs.md", "exec"), {})
    seed, index, *_ = capsys.readouterr().out.split()
    assert int(seed) in set(np.concatenate(asked))
    assert float(index) == summary["index_quantiles"]["0"]


def told_keys() -> set[str]:
    """The keys of summary.json, as the architecture lists them."""
    section = ARCHITECTURE.read_text(encoding="utf-8").split("\n## The summary\n")[1].split("\n## ")[0]
    return {key for row in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)}


def some_summary() -> dict[str, Any]:
    return dict.fromkeys(told_keys(), 1) | {
        "index": "jfi",
        "index_quantiles": {"0": 0.5, "0.5": 0.5},
        "jfi_quantiles": {"0": 0.5, "0.5": 0.5},
        "natural_rate": {"rate": 0.5, "low": 0.4, "high": 0.6, "unfair": 1, "executions": 2},
        "phases": {"proof": 0.5, "execution": 0.5},
        "explain": None,
        "competence": None,
        "agents": [1, 2],
        "sides": None,
        "worst_off": {"agent": None, "unit": "starts", "votes": 0, "least": []},
        "predictor": {"d": 0.5, "auc_full": 0.5, "auc_abstract": 0.5, "joint_states": 1},
    }


class Heard:
    """What a host's logger is told; `_run_obj` is its sacred run."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.artifacts: list[str] = []
        self.info: dict[str, Any] = {}
        self._run_obj = self

    def log_stat(self, name: str, value: float, step: int) -> None:
        self.names.append(name)

    def add_artifact(self, path: str, name: str) -> None:
        self.artifacts.append(name)


def test_the_logging_page_lists_what_the_plugin_logs(tmp_path: Path) -> None:
    """The scalars, the artifacts of the files that docs/runs.md names, and the entry of sacred's info."""
    section = RUNS.read_text("utf-8").split("\n## What a run leaves")[1].split("\n## ")[0]
    named = re.findall(r"^\| `([\w.]+/?)` \|", section, re.MULTILINE)
    inside = {"policy/": ["agent.th", "learner.th", "policy.yaml", "training_pool.npz"], "report/": ["index.html"]}
    for name in named:
        for file in [tmp_path / name / part for part in inside.get(name, [""])]:
            file.parent.mkdir(exist_ok=True)
            file.touch()
    logger = Heard()
    SacredLog(logger, 100, info=True).finished(tmp_path, some_summary(), None)  # type: ignore[arg-type]
    rows = re.findall(r"^\| (`fairtest_[^|]+) \|", prose(LOGGING), re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`(\w[^`]+)`", row)]
    assert sorted(told) == sorted(logger.names + logger.artifacts)
    assert [f'info["{key}"]' for key in logger.info] == re.findall(r"`(info\[.+?\])`", prose(LOGGING))


def test_the_shown_table_has_the_rows_of_a_real_one(tmp_path: Path) -> None:
    (shown,) = (block for block in blocks(RUNS, "text") if "unfair episodes" in block)
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").touch()
    summary = some_summary()

    def labels(table: str) -> list[str]:
        lines = (line for line in table.splitlines() if not line.startswith(("--", " " * 10)))  # the rest of a row
        return [re.split(" {2,}", line.strip())[0] for line in lines]

    by_competence = {"return", "per agent", "random team", "take care", "why", "one decision", "situation"}
    assert [name for name in labels(shown) if name not in by_competence] == labels(summary_table(summary, tmp_path))


def test_the_run_folder_holds_the_files_that_are_named(tmp_path: Path) -> None:
    section = RUNS.read_text(encoding="utf-8").split("\n## What a run leaves behind\n")[1].split("\n## ")[0]
    named = set(re.findall(r"^\| `([\w.]+/?)` \|", section, re.MULTILINE))
    run = RunFolder(tmp_path / "run")
    run.write_manifest({})
    run.join_failures({"status": np.full(0, "unchecked")})
    run.write_evidence({}, {})
    run.finish({})
    assert {path.name for path in run.path.iterdir()} == named - {"journal.jsonl", "natural.npz", "policy/", "report/"}


# --- decisions, changelog, licence ---


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_its_number_and_its_four_parts(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.stem[:3]}: ")
    parts = ["Question", "Options", "What was measured", "Choice"]
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == parts


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(page.stem[:3]) for page in DECISIONS] == list(range(len(DECISIONS)))


def test_the_changelog_begins_with_this_version() -> None:
    from epymarl_fairtest import __version__

    first = re.search(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None
    assert first.group(1) == __version__


def test_the_licence_is_the_one_that_setup_names() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Copyright 2026 The FairTest authors" in text
    assert 'license="Apache-2.0"' in (ROOT / "setup.py").read_text()
