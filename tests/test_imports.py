"""Who may import whom. A new edge is a decision: it is made here, and in docs/architecture.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from epymarl_fairtest.core.shipped import PACKAGE

EDGES = {  # package or module -> what it may import of ours, itself aside
    "__init__": {"registration"},
    "__main__": {"cli"},
    "baselines": {
        "campaign", "config", "episode", "errors", "fairness", "predictor", "rng", "search", "tasks",
    },
    "campaign": {"config", "engine", "episode", "fairness", "ledger", "metrics", "pool", "rng", "tasks"},
    "cli": {
        "__init__", "completion", "config", "demo", "errors", "experiment", "host", "ledger", "policies", "replay",
        "report", "run", "stopping", "store", "subject", "workflow",
    },
    "completion": {"errors"},
    "confirm": {"engine", "episode"},
    "config": {"errors", "fairness", "files", "ledger"},
    "demo": {"errors", "host", "run"},
    "engine": {"episode", "errors", "rng", "tasks"},
    "episode": set(),
    "errors": set(),
    "experiment": {
        "__init__", "baselines", "config", "errors", "fairness", "host", "pool", "predictor", "report", "rng", "run",
        "search", "statistics", "store", "strategies", "subject",
    },
    "replay": {"config", "confirm", "episode", "errors", "fairness", "report", "run", "store", "subject"},
    "report": {"episode", "errors", "fairness", "ledger", "metrics", "statistics", "store", "tasks"},
    "fairness": set(),
    "files": set(),
    "hook": {"host"},
    "host": {"config", "engine", "errors", "fairness", "files", "pool", "run", "stopping", "store", "tasks"},
    "ledger": set(),
    "metrics": {"episode", "fairness", "tasks"},
    "policies": {"config", "episode", "errors", "fairness", "files", "host", "run", "subject"},
    "pool": {"errors", "rng", "store"},
    "predictor": {"episode", "fairness", "pool", "rng"},
    "registration": set(),
    "rng": set(),
    "run": {
        "__init__", "baselines", "campaign", "config", "confirm", "engine", "errors", "fairness", "ledger", "metrics",
        "pool", "report", "rng", "search", "stopping", "store", "strategies", "tasks",
    },
    "search": {"baselines", "campaign", "config", "episode", "errors", "fairness", "predictor", "tasks"},
    "statistics": set(),
    "stopping": set(),
    "store": {"config", "episode", "errors", "fairness"},
    "strategies": {"baselines", "campaign", "search"},
    "subject": {"engine", "errors", "host", "pool", "run", "tasks"},
    "tasks": {"errors", "host"},
    "workflow": {
        "__init__", "config", "episode", "errors", "fairness", "host", "report", "run",
        "statistics", "store", "subject", "tasks",
    },
}  # fmt: skip
LIBRARIES = {  # library -> the packages and modules that may import it
    "torch": {"baselines/gmt", "host", "subject", "tasks/tag"},
    "ot": {"baselines/diversity"},
    "sacred": {"host"},
    "pymarlzooplus": {"host"},
    "runners": {"host"},
    "envs": {"host"},
    "smaclite": {"host"},
    "matplotlib": {"report"},
    "PIL": {"report"},
    "sklearn": {"baselines/start_surrogate", "predictor"},
    "scipy": {"policies", "predictor", "report", "statistics", "workflow"},
    "moocore": {"search"},
    "numba": {"engine"},
    "tqdm": {"experiment", "run"},
    "joblib": {"experiment"},
    "distributed": {"experiment/backends"},
    "ray": {"experiment/backends"},
    "lbforaging": {"tasks/foraging"},
    "gymnasium": {"host", "registration", "subject", "tasks"},
    "yaml": {"config", "host", "report/stage"},
}
NUMPY_ALONE = ("fairness", "episode", "rng", "ledger", "pool", "metrics", "campaign", "store")
OURS = "epymarl_fairtest"


@cache
def imports() -> list[tuple[str, str]]:
    """Every import in the package, at the top or inside a function: (module, imported)."""
    return [
        ("/".join(file.relative_to(PACKAGE).with_suffix("").parts), name)
        for file in sorted(PACKAGE.rglob("*.py"))
        if "shipped" not in file.parts
        for node in ast.walk(ast.parse(file.read_text()))
        for name in names(node)
    ]


def names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are written in full"
        if node.module == OURS:
            yield from (f"{OURS}.{alias.name}" for alias in node.names)
        elif node.module != "__future__":
            yield node.module or ""


def package(module: str) -> str:
    return module.split("/")[0]


def targets() -> list[tuple[str, str]]:
    """Imports of our own modules: (module, imported module as a path without our name)."""
    found = []
    for module, name in imports():
        if name.split(".")[0] == OURS:
            inside = name.split(".")[1:]
            known = inside and ((PACKAGE / f"{inside[0]}.py").is_file() or (PACKAGE / inside[0]).is_dir())
            found.append((module, "/".join(inside) if known else "__init__"))
    return found


def test_packages_import_what_the_table_allows_and_nothing_else() -> None:
    found: dict[str, set[str]] = {package(module): set() for module, _ in imports()}
    for module, target in targets():
        if package(target) != package(module):
            found[package(module)].add(package(target))
    for name, edges in found.items():
        assert edges == EDGES.get(name, set()), f"{name} imports {sorted(edges ^ EDGES.get(name, set()))}: decide"


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_are_imported_where_they_belong(library: str) -> None:
    users = {module for module, name in imports() if name.split(".")[0] == library}
    strangers = {user for user in users if not {package(user), user} & LIBRARIES[library]}
    assert not strangers


@pytest.mark.parametrize("module", NUMPY_ALONE)
def test_the_core_needs_nothing_but_numpy(module: str) -> None:
    found = {name.split(".")[0] for user, name in imports() if package(user) == module}
    assert found - set(sys.stdlib_module_names) <= {"numpy", OURS}


def test_tasks_know_no_policy_and_no_engine() -> None:
    reached = {target for module, target in targets() if package(module) == "tasks" and package(target) != "tasks"}
    assert reached == {"errors", "host/checkout"}, "host/checkout only finds EPyMARL's pretrained prey"


def test_strategies_touch_neither_engine_nor_disk_nor_host() -> None:
    forbidden = {"engine", "store", "host", "run", "cli"}
    for module, target in targets():
        if package(module) in ("baselines", "search", "strategies"):
            assert package(target) not in forbidden, f"{module} imports {target}"


def test_the_campaign_knows_engines_by_their_contract_alone() -> None:
    reached = {target for module, target in targets() if module == "campaign" and package(target) == "engine"}
    assert reached == {"engine/contract"}


def test_engines_know_no_host_no_store_and_no_search() -> None:
    for module, target in targets():
        if package(module) == "engine":
            assert package(target) in {"engine", "episode", "errors", "rng", "tasks"}, f"{module} imports {target}"


def test_doors_into_host_are_few() -> None:
    """Who imports which part of host/ from outside."""
    doors = {(module, target) for module, target in targets() if package(target) == "host" != package(module)}
    assert doors == {
        ("cli", "host/doctor"),
        ("policies", "host/checkpoint"),
        ("workflow/gate", "host/checkpoint"),
        ("workflow/export", "host/checkpoint"),
        ("experiment/study", "host/checkpoint"),
        ("cli", "host/install"),
        ("cli", "host/launch"),
        ("cli", "host/checkpoint"),
        ("demo", "host/checkout"),
        ("hook", "host/attach"),
        ("subject", "host/checkpoint"),
        ("tasks/tag", "host/checkout"),
    }


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
    assert not loaded_after("import epymarl_fairtest") & {"torch", "sacred", "sklearn", "scipy", "numba", "lbforaging"}


def test_every_rule_is_about_something_that_exists() -> None:
    there = {path.stem for path in PACKAGE.glob("*.py")} | {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    assert set(EDGES) <= there
    assert {package(user) for users in LIBRARIES.values() for user in users} <= there | {"report"}
    assert all((PACKAGE / Path(name)).exists() or (PACKAGE / f"{name}.py").exists() for name in NUMPY_ALONE)
