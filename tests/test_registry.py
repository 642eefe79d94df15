"""Registries: our own modules in their order, what other packages add, and entry points that do not work."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from epymarl_fairtest.campaign.steps import STEPS
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES, Index
from epymarl_fairtest.core.indices.contract import complaint as lacks_of_an_index
from epymarl_fairtest.core.registry import Registry
from epymarl_fairtest.strategies import STRATEGIES
from epymarl_fairtest.strategies.contract import complaint as lacks_of_a_strategy
from epymarl_fairtest.tasks import TASKS
from epymarl_fairtest.tasks.contract import complaint as lacks_of_a_task

Install = Callable[..., None]
OWN = ["jfi", "gini", "min_max", "cv"]
PARTICLES = ["reference", "speaker_listener", "adversary"]
PLACES = ["spread", "tag", "foraging", *PARTICLES, "warehouse", "matrix", "vmas"]


def source_of(name: str = "least", label: str = "least share", order: Any = 50, attribute: str = "INDEX") -> str:
    """A module with an index."""
    return (
        "from epymarl_fairtest.core.indices import Index\n"
        f"{attribute} = Index({name!r}, {label!r}, lambda received: received.min(axis=-1), order={order!r})\n"
    )


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Makes a package with one module and its entry points, as pip would leave it."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def made(package: str, source: str, group: str = "fairtest.indices", **points: str) -> None:
        (tmp_path / f"{package}_code.py").write_text(source)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {package}_code:{attribute}" for name, attribute in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
        importlib.invalidate_caches()

    yield made
    for name in set(sys.modules) - before:
        if name.endswith("_code"):
            del sys.modules[name]


def indices() -> Registry[Index]:
    """A registry of indices that nobody has looked at yet."""
    return Registry(
        "fairness index",
        package="epymarl_fairtest.core.indices",
        attribute="INDEX",
        group="fairtest.indices",
        complaint=lacks_of_an_index,
    )


def problem_of(registry: Registry[Any], caplog: pytest.LogCaptureFixture) -> str:
    """The one problem there is, after everything was looked at more than once; it was logged once."""
    with caplog.at_level(logging.WARNING, "fairtest"):
        for _ in range(3):
            assert list(registry)
            assert len(registry) == len(dict(registry))
    (problem,) = registry.problems
    assert [(record.name, record.getMessage()) for record in caplog.records] == [("fairtest", problem)]
    return problem


# --- our own ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("registry", "names"),
    [
        (INDICES, OWN),
        (TASKS, [*PLACES, "generic"]),
        (
            STRATEGIES,
            [
                "random",
                "gmt",
                "mastest",
                "starla",
                "mdpfuzz",
                "map_elites",
                "hill_climber",
                "start_surrogate",
                "scout",
                "fairtest",
            ],
        ),
        (STEPS, ["replay", "natural", "random_team", "explain"]),
    ],
    ids=["indices", "tasks", "strategies", "steps"],
)
def test_our_own_modules_are_found_in_their_order(registry: Registry[Any], names: list[str]) -> None:
    assert [name for name in registry if name in names] == names
    assert all(registry[name].name == name for name in registry)
    assert {entry.name for entry in registry.own()} == set(names)
    assert registry.get("nothing") is None


def test_entries_come_by_their_order_and_then_by_name(install: Install) -> None:
    install("front", source_of("least", order=-1), least="INDEX")
    both = source_of("zebra", order=100) + source_of("aardvark", order=100, attribute="SECOND")
    install("back", both, zebra="INDEX", aardvark="SECOND")
    registry = indices()
    assert list(registry) == ["least", *OWN, "aardvark", "zebra"]
    assert not registry.problems
    assert registry["least"].label == "least share"


def test_a_registry_is_filled_when_it_is_first_looked_at(install: Install) -> None:
    install("late", "raise RuntimeError('imported')\nINDEX = None", least="INDEX")
    registry = indices()
    assert not registry.problems
    assert len(registry.own()) == len(OWN)
    assert not registry.problems, "our own entries can be had without importing what others add"
    assert list(registry) == OWN
    assert len(registry.problems) == 1


def test_a_name_that_is_not_there_is_refused_with_those_that_are() -> None:
    assert indices().named("gini", "index='gini'") is INDICES["gini"]
    with pytest.raises(FairTestError) as caught:
        indices().named("ginny", "fairtest_args.index='ginny'")
    assert str(caught.value) == (
        "fairtest_args.index='ginny' is not a fairness index; known are: jfi, gini, min_max, cv. Did you mean gini?"
    )
    with pytest.raises(FairTestError, match=r"known are: jfi, gini, min_max, cv\.$"):
        indices().named("zzzzzz", "index")
    with pytest.raises(KeyError):
        indices()["ginny"]


def test_asking_for_an_entry_point_that_does_not_work_says_why(install: Install) -> None:
    install("broken", "import nothing_of_that_name", least="INDEX", most="INDEX")
    with pytest.raises(FairTestError) as caught:
        indices().named("least", "index='least'")
    message = str(caught.value)
    assert message.startswith("index='least' is not a fairness index; known are: ")
    assert "'least' of the package 'broken'" in message
    assert "nothing_of_that_name" in message
    assert "'most'" not in message


# --- entry points that do not work --------------------------------------------------------------------

BROKEN = {  # what a module holds -> what is said of it
    "does not import": ("import nothing_of_that_name", "cannot be imported (ModuleNotFoundError: No module named"),
    "is not Python": ("def", "cannot be imported (SyntaxError: "),
    "ends the program": ("import sys\nsys.exit(3)", "cannot be imported (SystemExit: 3)"),
    "raises": ("raise RuntimeError('out of luck')", "cannot be imported (RuntimeError: out of luck)"),
    "lacks the attribute": ("", "cannot be imported (AttributeError: module 'foreign_code' has no attribute 'INDEX')"),
    "is of the wrong type": ("INDEX = 5", "is of type int, not epymarl_fairtest.core.indices.contract.Index"),
    "is a class": ("from epymarl_fairtest.core.indices import Index as INDEX", "is of type type, not "),
    "lacks a label": (source_of(label=""), "lacks label"),
    "lacks two parts": (
        "from epymarl_fairtest.core.indices import Index\nINDEX = Index('least', None, None)",
        "lacks label, of",
    ),
    "has no plain name": (source_of("the least"), "lacks name"),
    "has no number for an order": (source_of(order="first"), "has the order 'first', which is not a whole number"),
    "has a name already taken": (
        source_of("gini"),
        "is called 'gini', and there is a fairness index of that name already",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_an_entry_point_that_does_not_work_is_named_with_its_package_and_everything_else_works(
    kind: str, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    source, why = BROKEN[kind]
    install("foreign", source, theirs="INDEX")
    install("sound", source_of("sound"), sound="INDEX")
    registry = indices()
    problem = problem_of(registry, caplog)
    assert problem.startswith("The fairness index 'theirs' of the package 'foreign' (foreign_code:INDEX) ")
    assert why in problem
    assert problem.endswith("; it is left out.")
    assert list(registry) == [*OWN, "sound"]
    assert registry["gini"] is INDICES["gini"], "ours is kept"


def test_of_two_packages_with_one_name_the_second_is_left_out(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("first", source_of(), least="INDEX")
    install("second", source_of(), least="INDEX")
    registry = indices()
    problem = problem_of(registry, caplog)
    assert "is called 'least', and there is a fairness index of that name already" in problem
    assert list(registry) == [*OWN, "least"]


def test_what_cannot_even_be_looked_at_is_left_out(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    install("foreign", "INDEX = object()", theirs="INDEX")

    def complaint(entry: Any) -> str | None:
        raise TypeError("unhashable type")

    registry: Registry[Any] = Registry(
        "index", package="epymarl_fairtest.core.indices", attribute="INDEX", group="fairtest.indices",
        complaint=complaint,
    )  # fmt: skip
    assert "cannot be looked at (TypeError: unhashable type)" in problem_of(registry, caplog)
    assert list(registry) == OWN


STRATEGY = """
from epymarl_fairtest.settings import NoOptions
from epymarl_fairtest.strategies.contract import Strategy
STRATEGY = Strategy("theirs", {label!r}, {search}, needs={needs!r}, options={options})
"""


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"label": ""}, "lacks label"),
        ({"search": "None"}, "lacks search"),
        ({"needs": ("wings",)}, "lacks needs"),
        ({"needs": ([],)}, "unhashable"),
        ({"options": "dict"}, "lacks options"),
    ],
)
def test_a_strategy_that_lacks_a_part_is_named(
    given: dict[str, Any], why: str, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    whole = {"label": "Theirs", "search": "print", "needs": (), "options": "NoOptions"}
    install("foreign", STRATEGY.format(**{**whole, **given}), "fairtest.strategies", theirs="STRATEGY")
    registry: Registry[Any] = Registry(
        "method", package="epymarl_fairtest.strategies", attribute="STRATEGY", group="fairtest.strategies",
        complaint=lacks_of_a_strategy,
    )  # fmt: skip
    problem = problem_of(registry, caplog)
    assert "The method 'theirs' of the package 'foreign'" in problem
    assert why in problem
    assert list(registry) == list(STRATEGIES)


TASK = """
from epymarl_fairtest.tasks.generic.rules import GenericTask
from epymarl_fairtest.tasks.contract import Task
class Theirs({base}):
    name = {name!r}
    theta = 0.5
    restorable = False
    distinct_distance = 0.0
"""


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("Theirs = 5", "is 5, not a subclass of epymarl_fairtest.tasks.contract.Task"),
        ("class Theirs: pass", "not a subclass of epymarl_fairtest.tasks.contract.Task"),
        (TASK.format(base="Task", name="theirs"), "lacks __init__, positions, read, recognises"),
        ("from epymarl_fairtest.tasks.contract import Task as Theirs", "lacks name, theta, restorable"),
        (TASK.format(base="GenericTask", name="their own"), "has the name 'their own', which is not a plain word"),
    ],
)
def test_a_task_that_lacks_a_part_is_named(
    source: str, why: str, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("foreign", source, "fairtest.tasks", theirs="Theirs")
    registry: Registry[Any] = Registry(
        "task", package="epymarl_fairtest.tasks", attribute="TASK", group="fairtest.tasks", complaint=lacks_of_a_task
    )
    problem = problem_of(registry, caplog)
    assert "The task 'theirs' of the package 'foreign'" in problem
    assert why in problem
    assert list(registry) == list(TASKS)


def test_a_task_of_another_package_is_asked_before_generic(install: Install) -> None:
    source = TASK.format(base="GenericTask", name="theirs") + "    order = 100\n"
    install("foreign", source, "fairtest.tasks", theirs="Theirs")
    registry: Registry[Any] = Registry(
        "task", package="epymarl_fairtest.tasks", attribute="TASK", group="fairtest.tasks", complaint=lacks_of_a_task
    )
    assert list(registry) == [*PLACES, "theirs", "generic"]
