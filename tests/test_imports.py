"""Who may import whom. A new edge is a decision: it is made here, and in docs/architecture.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from epymarl_fairtest.core.shipped import PACKAGE

OURS = "epymarl_fairtest"
EDGES = {  # folder -> what it may import of ours, itself aside
    "__init__": {"api", "core", "tasks"},
    "__main__": {"commands"},
    "hook": {"host"},
    "core": set(),
    "settings": {"core"},
    "tasks": {"core"},
    "team": {"core", "tasks"},
    "engine": {"core", "settings", "tasks", "team"},
    "predictor": {"core", "team"},
    "strategies": {"core", "predictor", "settings", "tasks", "team"},
    "store": {"core", "settings"},
    "curve": {"core", "engine", "settings", "store", "tasks", "team"},
    "campaign": {"core", "curve", "engine", "settings", "store", "strategies", "tasks", "team"},
    "report": {"campaign", "core", "curve", "store", "tasks", "team"},
    "study": {
        "campaign", "core", "engine", "predictor", "report", "settings", "store", "strategies", "team",
    },
    "repair": {"campaign", "core", "curve", "engine", "settings", "store", "team"},
    "host": {"campaign", "core", "curve", "repair", "report", "settings", "store", "strategies", "tasks", "team"},
    "api": {
        "campaign", "core", "curve", "engine", "host", "repair", "report", "settings", "store", "strategies", "study",
        "team",
    },
    "commands": {
        "api", "campaign", "core", "curve", "engine", "host", "repair", "report", "settings", "store", "strategies",
        "study", "tasks", "team", "testing",
    },
    "testing": {"campaign", "core", "engine", "report", "settings", "store", "strategies", "tasks", "team"},
}  # fmt: skip
LIBRARIES = {  # library -> the folders and modules that may import it
    "sacred": {"host"},
    "pymarlzooplus": {"host"},
    "runners": {"host"},
    "envs": {"host"},
    "smaclite": {"host"},
    "matplotlib": {"report"},
    "PIL": {"report"},
    "jinja2": {"report"},
    "torch": {"host", "strategies/gmt", "tasks/tag/environment", "team", "testing"},
    "gymnasium": {"host", "tasks", "team", "testing"},
    "lbforaging": {"tasks/foraging"},
    "vmas": {"tasks/vmas"},
    "numba": {
        "campaign/packing/compiled",
        "engine/advance",
        "engine/choice",
        "engine/meeting",
        "strategies/gmt/compiled",
        "strategies/gmt/packed",
        "strategies/gmt/reverse",
        "strategies/scout/boosting",
        "strategies/scout/spacing",
        "tasks/kernels",
        "tasks/mpe/physics",
        "tasks/foraging",
        "tasks/spread",
        "tasks/tag",
        "team/gates",
        "team/products",
    },
    "llvmlite": {"tasks/kernels/copies", "tasks/kernels/tiles", "team/products"},
    "sklearn": {
        "predictor/forest",
        "predictor/trees",
        "strategies/mdpfuzz/freshness",
        "strategies/scout/surrogate",
        "strategies/start_surrogate",
    },
    "threadpoolctl": {"strategies/map_elites", "strategies/mdpfuzz/freshness"},
    "ribs": {"strategies/map_elites"},
    "scipy": {"commands/not_worse", "commands/policies", "core/statistics", "predictor"},
    "moocore": {"strategies/genetic"},
    "ot": {"strategies/mastest"},
    "yaml": {"host", "settings", "team"},
    "filelock": {"store"},
    "tqdm": {"campaign/observers"},
    "joblib": {"commands/study", "study/backends"},
    "distributed": {"study/backends"},
    "ray": {"study/backends"},
    "pandas": {"api/repaired", "api/result"},
    "shtab": {"commands/completion"},
}
NUMPY_ALONE = {  # folder or module -> what it needs besides numpy
    "core": {"scipy"},  # core/statistics, by the table above
    "settings": {"yaml"},
    "store": {"filelock"},
    "campaign/coverage": set(),
    "campaign/loop": set(),
    "campaign/tally": set(),
    "tasks/contract": set(),
    "tasks/scene": set(),
    "team/contract": set(),
    "team/sample": set(),
}
LONGEST = 60  # lines of a function; a kernel reads like the rules it follows and may be longer
KERNELS = {"boosting", "twin"}


@cache
def sources() -> dict[str, ast.Module]:
    """Every module of the package as a path below it, parsed."""
    return {
        "/".join(file.relative_to(PACKAGE).with_suffix("").parts): ast.parse(file.read_text())
        for file in sorted(PACKAGE.rglob("*.py"))
        if "shipped" not in file.parts
    }


@cache
def imports() -> list[tuple[str, str]]:
    """Every import in the package, at the top or inside a function: (module, imported)."""
    return [(module, name) for module, tree in sources().items() for node in ast.walk(tree) for name in names(node)]


def names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are written in full"
        if (node.module or "").split(".")[0] == OURS:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif node.module != "__future__":
            yield node.module or ""


def top(module: str) -> str:
    return module.split("/")[0]


def is_in(module: str, places: set[str]) -> bool:
    """Is the module one of these, or in one of these folders?"""
    return any(module == place or module.startswith(f"{place}/") for place in places)


@cache
def targets() -> list[tuple[str, str]]:
    """Imports of our own modules: (module, imported module), folders as their `__init__`."""
    return [(module, defined_in(name)) for module, name in imports() if name.split(".")[0] == OURS]


def defined_in(name: str) -> str:
    """The module that `epymarl_fairtest.folder.module.thing` is or stands in."""
    path = "/".join(name.split(".")[1:])
    for module in (path, path.rpartition("/")[0]):
        for found in (module, f"{module}/__init__".lstrip("/")):
            if found in sources():
                return found
    raise AssertionError(f"{name} is imported and does not exist")


def graph_of(edges: list[tuple[str, str]]) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for start, end in edges:
        graph.setdefault(start, set())
        if start != end:
            graph[start].add(end)
    return graph


def cycle_in(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


# --- among ourselves ----------------------------------------------------------------------------------


def test_folders_import_what_the_table_allows_and_nothing_else() -> None:
    found = graph_of([(top(module), top(target)) for module, target in targets()])
    for name in {top(module) for module in sources()}:
        edges, allowed = found.get(name, set()), EDGES.get(name, set())
        assert edges == allowed, f"{name} imports {sorted(edges - allowed)}, not {sorted(allowed - edges)}: decide"


def test_there_is_no_cycle_between_folders() -> None:
    assert not cycle_in(graph_of([(top(module), top(target)) for module, target in targets()]))


def test_there_is_no_cycle_between_modules_not_even_inside_functions() -> None:
    assert not cycle_in(graph_of(targets()))


def test_a_cycle_would_be_found() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert not cycle_in({"a": {"b"}, "b": {"c"}, "c": set()})


def test_tasks_know_neither_policy_nor_engine_nor_host() -> None:
    reached = {target for module, target in targets() if top(module) == "tasks" and top(target) != "tasks"}
    assert {top(target) for target in reached} == {"core"}
    assert ("tasks/tag/environment", "core/checkout") in targets(), "it finds EPyMARL's pretrained prey there"


def test_strategies_touch_neither_engine_nor_store_nor_host() -> None:
    forbidden = {"campaign", "commands", "engine", "host", "report", "store", "study"}
    for module, target in targets():
        if top(module) in ("strategies", "predictor"):
            assert top(target) not in forbidden, f"{module} imports {target}"


def test_engines_know_no_host_no_store_and_no_search() -> None:
    for module, target in targets():
        if top(module) == "engine":
            assert top(target) in {"core", "engine", "settings", "tasks", "team"}, f"{module} imports {target}"


def test_the_loop_knows_engines_by_their_contract_alone() -> None:
    reached = {target for module, target in targets() if module == "campaign/loop" and top(target) == "engine"}
    assert reached == {"engine/contract"}


def test_a_campaign_knows_no_report() -> None:
    for module, target in targets():
        if top(module) == "campaign":
            assert top(target) not in {"commands", "host", "report", "study"}, f"{module} imports {target}"


def test_doors_into_host_are_few() -> None:
    """Who imports which part of host/ from outside."""
    doors = {(module, target) for module, target in targets() if top(target) == "host" != top(module)}
    assert doors == {
        ("commands/doctor", "host/install"),
        ("commands/doctor", "host/mpe2_bridge"),
        ("commands/doctor", "host/smaclite_guard"),
        ("commands/doctor", "host/suited"),
        ("commands/install", "host/install"),
        ("commands/launch", "host/launch"),
        ("api/starting", "host/sacred_log"),
        ("api/repairing", "host/sacred_log"),
        ("api/repairing", "host/trainer"),
        ("hook", "host/attach"),
    }


# --- libraries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_are_imported_where_they_belong(library: str) -> None:
    users = {module for module, name in imports() if name.split(".")[0] == library}
    assert not {user for user in users if not is_in(user, LIBRARIES[library])}


def test_every_library_has_a_place() -> None:
    known = {*sys.stdlib_module_names, *LIBRARIES, OURS, "numpy"}
    assert not {(module, name) for module, name in imports() if name.split(".")[0] not in known}


@pytest.mark.parametrize("place", NUMPY_ALONE)
def test_the_core_needs_nothing_but_numpy(place: str) -> None:
    found = {name.split(".")[0] for module, name in imports() if is_in(module, {place})}
    assert found - set(sys.stdlib_module_names) <= {"numpy", OURS} | NUMPY_ALONE[place]


def loaded_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_a_search_can_be_imported_without_torch_and_without_a_training_framework() -> None:
    loaded = loaded_after(
        "import epymarl_fairtest.campaign.run, epymarl_fairtest.tasks, epymarl_fairtest.engine.lockstep"
    )
    assert OURS in loaded
    assert not loaded & {"torch", "sacred", "pymarlzooplus", "runners", "envs", "matplotlib"}


def test_the_package_itself_is_light() -> None:
    """Hosts' workers import it for the registered environments."""
    assert not loaded_after("import epymarl_fairtest") & {
        "torch",
        "sacred",
        "sklearn",
        "scipy",
        "numba",
        "lbforaging",
        "pandas",
        "tqdm",
    }


def test_the_command_line_is_light_until_a_command_runs() -> None:
    loaded = loaded_after("from epymarl_fairtest.commands.parser import make_parser; make_parser()")
    assert not loaded & {"torch", "sacred", "sklearn", "scipy", "numba", "lbforaging", "matplotlib"}


# --- functions ----------------------------------------------------------------------------------------


def test_no_function_is_longer_than_a_screen() -> None:
    lengths = {
        f"{module}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module, tree in sources().items()
        if module.rpartition("/")[2] not in KERNELS
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(lengths) > 800, "hardly any function was looked at"
    assert not {name: lines for name, lines in lengths.items() if lines > LONGEST}


def test_every_rule_is_about_something_that_exists() -> None:
    def exists(place: str) -> bool:
        return (PACKAGE / place).is_dir() or place in sources()

    assert {top(module) for module in sources()} == set(EDGES)
    assert all(exists(place) for places in LIBRARIES.values() for place in places)
    assert all(exists(place) for place in NUMPY_ALONE)
