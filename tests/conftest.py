"""Training runs of the hosts are shared by the tests and start with the first test of the session."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from host_jobs import JOBS, NO_CHECKOUT, Finished, Workshop, in_process_epymarl, stock_copy
from support import compile_twins, in_small

from epymarl_fairtest.core.checkout import known_checkout
from epymarl_fairtest.host.hosts import Host, PymarlZoo
from epymarl_fairtest.report.observer import Page


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until everything is imported
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in a shell's background are born deaf to it
    torch.set_num_threads(1)  # as FairTest does: more threads only collapse on a shared machine
    os.fsync = lambda handle: None  # no test survives a power cut; those that kill processes start their own
    Page.finished = lambda *run: None  # type: ignore[method-assign]  # drawing takes longer than most searches: see `pages`
    if getattr(config.option, "numprocesses", None) and not (SPREAD or config.option.collectonly):
        compile_twins()


def pytest_collection_finish() -> None:
    """What was imported stays: looking through it again and again would take a tenth of the time."""
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


draw = Page.finished
SLOW_KINDS = ("fresh", "ray", "browser", "crash", "docs", "host")  # markers, each of which means slow
SPREAD = "PYTEST_XDIST_WORKER" in os.environ
# Trainings run beside whatever comes first; each of the others takes a minute or more of the slow tier.
LONGEST = ("test_plugin", "test_docs_run", "test_study", "test_contracts", "test_search")


@pytest.fixture(scope="session", autouse=True)
def _in_small() -> list[tuple[Any, str, Any]]:
    return in_small()


@pytest.fixture(scope="session")
def shipped(_in_small: list[tuple[Any, str, Any]]) -> Callable[[], AbstractContextManager[None]]:
    """A context in which runs and pages repeat what they do as often as those of users, and of other processes."""

    @contextmanager
    def context() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module, name, value in _in_small:
                patch.setattr(module, name, value)
            yield

    return context


@pytest.fixture
def as_shipped(shipped: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    with shipped():
        yield


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw their page, as they do outside of tests."""
    monkeypatch.setattr(Page, "finished", draw)


@pytest.fixture(scope="session")
def stock_epymarl(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A copy of the user's EPyMARL without FairTest, or None where no checkout is known."""
    checkout = known_checkout()
    return None if checkout is None else stock_copy(checkout, tmp_path_factory.mktemp("epymarl"))


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory, stock_epymarl: object) -> Iterator[Workshop]:
    shop = Workshop(tmp_path_factory.mktemp("jobs"), stock_epymarl)  # type: ignore[arg-type]
    yield shop
    shop.close()


@pytest.hookimpl(tryfirst=True)  # before `-m` is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of a slow job is slow. Of files spread over processes the longest go first: no core waits for the last."""
    for item in items:
        if any(JOBS[name].slow for mark in item.iter_markers("jobs") for name in mark.args):
            item.add_marker("host")
        if any(item.get_closest_marker(kind) for kind in SLOW_KINDS):
            item.add_marker("slow")
    if SPREAD:
        items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(scope="session", autouse=True)
def _started(request: pytest.FixtureRequest) -> None:
    """Begin early: training takes longer than everything else. Of several processes only one needs it."""
    if not SPREAD:
        request.getfixturevalue("ordered")


@pytest.fixture(scope="session")
def ordered(request: pytest.FixtureRequest) -> None:
    names = {name for item in request.session.items for mark in item.iter_markers("jobs") for name in mark.args}
    if names:
        request.getfixturevalue("workshop").order(names)


@pytest.fixture
def finished(request: pytest.FixtureRequest, ordered: None, workshop: Workshop) -> Callable[[str], Finished]:
    """The result of a job that the test names in its `jobs` mark."""
    named = {name for mark in request.node.iter_markers("jobs") for name in mark.args}
    if not all(workshop.can(name) for name in named):
        pytest.skip(NO_CHECKOUT)

    def result(name: str) -> Finished:
        assert name in named, f"{name} is missing from the jobs mark"
        return workshop.result(name)

    return result


@pytest.fixture(scope="module")
def in_process(stock_epymarl: Path | None) -> Iterator[Host | None]:
    """EPyMARL's modules in this process; None where no checkout is known."""
    if stock_epymarl is None:
        yield None
    else:
        with in_process_epymarl(stock_epymarl) as host:
            yield host


@pytest.fixture
def host(request: pytest.FixtureRequest, in_process: Host | None) -> Host:
    """The host that the test's parameter names: zoo or epymarl."""
    if request.param == "zoo":
        return PymarlZoo()
    if in_process is None:
        pytest.skip(NO_CHECKOUT)
    return in_process
