"""Where the jobs of a study run: processes of this machine (joblib), a Dask cluster or a Ray cluster.

Knows workers and nothing of what they work on: `work` is a picklable function of one item, and it returns its own
errors. What is left to this module are workers that are lost, cannot be reached or cannot work.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.version import __version__

Item = TypeVar("Item")
Work = Callable[[Item], dict[str, Any]]
RETRIES = 3  # how often Ray gives an item to another worker after its worker was lost; Dask's allowed-failures is 3 too


@dataclass(frozen=True)
class Place:
    """Where to run: which backend, how many workers or which cluster, and what every worker must see."""

    backend: str
    jobs: int
    address: str | None = None
    timeout: float = 20.0  # seconds until a cluster that does not answer is given up
    file: Path | None = None  # a worker that sees another file here, or none, is not on our filesystem
    folders: tuple[Path, ...] = ()


def check_place(backend: str, jobs: int | None, address: str | None, timeout: float) -> None:
    """Refuse what contradicts itself, in the words of the command line."""
    if jobs is not None and jobs < 1:
        raise FairTestError(f"--jobs {jobs} is not allowed; it must be a whole number of at least 1.")
    if timeout <= 0:
        raise FairTestError(f"--timeout {timeout:g} is not allowed; it must be a number of seconds above 0.")
    if address and backend == "processes":
        raise FairTestError(f"--address {address} needs --backend dask or --backend ray.")
    if address and jobs is not None:
        raise FairTestError(f"--jobs {jobs} is for this machine; the cluster at --address has its own workers.")


def cores() -> int:
    from joblib import cpu_count

    return int(cpu_count())


def run_all(work: Work[Item], items: Sequence[Item], place: Place) -> Iterator[tuple[Item, dict[str, Any]]]:
    """Every item with what `work` made of it, as they end; {"error": …} for an item that loses its workers."""
    return BACKENDS[place.backend](work, items, place)


# --- processes ----------------------------------------------------------------------------------------


def processes(work: Work[Item], items: Sequence[Item], place: Place) -> Iterator[tuple[Item, dict[str, Any]]]:
    """loky breaks the whole pool when a worker dies. What may have killed it runs alone next, the rest together."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    waiting = dict(enumerate(items))
    while waiting:
        taken: list[int] = []
        try:
            for number, result in _parallel(work, waiting, min(place.jobs, len(waiting)), taken):
                del waiting[number]
                yield items[number], result
        except TerminatedWorkerError:
            for number in [number for number in taken if number in waiting]:
                try:
                    ((_, result),) = _parallel(work, {number: waiting[number]}, 2, [])
                except TerminatedWorkerError as error:
                    reason = " ".join(str(error).split())
                    result = {
                        "error": f"its worker process died twice, the second time with nothing beside it: {reason}"
                    }
                del waiting[number]
                yield items[number], result


def _parallel(work: Work[Item], waiting: Mapping[int, Item], jobs: int, taken: list[int]) -> Iterator[Any]:
    """`taken` collects which items were handed out: at any time no more than there are workers."""
    from joblib import Parallel, delayed

    def tasks() -> Iterator[Any]:
        for number, item in list(waiting.items()):
            taken.append(number)
            yield delayed(_numbered)(work, number, item)

    # It has replaced a worker that had grown large, and its job is done all the same.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given to the executor", UserWarning)
    pool = Parallel(n_jobs=jobs, backend="loky", pre_dispatch="n_jobs", batch_size=1, return_as="generator_unordered")
    yield from pool(tasks())


def _numbered(work: Work[Item], number: int, item: Item) -> tuple[int, dict[str, Any]]:
    return number, work(item)


# --- clusters -----------------------------------------------------------------------------------------


def dask(work: Work[Item], items: Sequence[Item], place: Place) -> Iterator[tuple[Item, dict[str, Any]]]:
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError as error:
        raise _not_installed("dask", error) from error
    cluster = None
    if place.address is None:
        # No memory limit: a nanny would kill the worker of a large job.
        cluster = LocalCluster(
            n_workers=place.jobs, threads_per_worker=1, memory_limit=0, dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        )  # fmt: skip
    client = None
    try:
        try:
            if place.address:
                asyncio.run(_greet_dask(place.address, place.timeout))  # a client waits forever if nothing answers
            client = Client(cluster or place.address, timeout=place.timeout, set_as_default=False)
            client.wait_for_workers(1, timeout=place.timeout)
        except (OSError, ValueError) as error:
            raise _no_answer(place, "scheduler with at least one worker", error) from error
        check_workers(client.run(probe(place)), place)
        waiting = {client.submit(work, item, pure=False): item for item in items}
        try:
            for future in as_completed(list(waiting), loop=client.loop):
                if future.status == "finished":
                    result = future.result()
                elif client.status != "running" or future.cancelled():
                    raise _gone(place)
                else:  # KilledWorker after RETRIES, or a worker that cannot even read the work
                    result = {"error": _reason(future.exception())}
                yield waiting[future], result
        finally:
            with suppress(Exception):  # of a cluster that is gone
                client.cancel(list(waiting), force=True)
    finally:
        for opened in (client, cluster):
            if opened is not None:
                opened.close()


def ray(work: Work[Item], items: Sequence[Item], place: Place) -> Iterator[tuple[Item, dict[str, Any]]]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a test tool does not phone home unasked
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the future default; else a warning
    try:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
    except ImportError as error:
        raise _not_installed("ray", error) from error
    local: dict[str, Any] = {} if place.address else {"num_cpus": place.jobs, "include_dashboard": False}
    try:
        if place.address and place.address != "auto":
            _greet_ray(place.address, place.timeout)  # Ray itself would try for minutes
        with _own_signals():
            ray.init(place.address or "local", log_to_driver=False, logging_level=logging.CRITICAL, **local)
    except (OSError, ValueError, RuntimeError) as error:
        raise _no_answer(place, "Ray cluster", error) from error
    try:
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        look = ray.remote(num_cpus=0)(probe(place))
        asked: dict[str, Any] = {
            f"{node['NodeManagerHostname']} ({node['NodeID'][:8]})": look.options(
                scheduling_strategy=On(node["NodeID"], soft=False)
            ).remote()
            for node in nodes
        }
        check_workers({name: ray.get(reference) for name, reference in asked.items()}, place)
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(work)
        waiting = {task.remote(item): item for item in items}
        while waiting:
            (reference,), _ = ray.wait(list(waiting), num_returns=1)
            try:
                result = ray.get(reference)
            except ray.exceptions.RaySystemError as error:
                raise _gone(place) from error
            except Exception as error:  # RayError, or what the worker raised before the work began
                result = {"error": _reason(error)}
            yield waiting.pop(reference), result
    finally:
        ray.shutdown()


@contextmanager
def _own_signals() -> Iterator[None]:
    """What SIGTERM does stays as it is: Ray would end this process in its own way, without a table."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


BACKENDS: dict[str, Callable[..., Iterator[tuple[Any, dict[str, Any]]]]] = {
    "processes": processes,
    "dask": dask,
    "ray": ray,
}


# --- can the workers work? ----------------------------------------------------------------------------


def probe(place: Place) -> Callable[[], dict[str, Any]]:
    """A function that finds out what a worker lacks. It is nested, so that it is sent as a whole: a worker without
    our package can still run it."""
    file, folders = str(place.file) if place.file else None, [str(folder) for folder in place.folders]

    def look() -> dict[str, Any]:
        import hashlib
        import importlib
        import os

        seen: dict[str, Any] = {"missing": None, "version": None, "digest": None}
        seen["unseen"] = [folder for folder in folders if not os.path.isdir(folder)]
        if file is not None and os.path.isfile(file):
            with open(file, "rb") as content:
                seen["digest"] = hashlib.sha256(content.read()).hexdigest()
        try:
            seen["version"] = importlib.import_module("epymarl_fairtest").__version__
            importlib.import_module("epymarl_fairtest.team.saved")
        except ModuleNotFoundError as error:
            seen["missing"] = error.name or str(error)
        return seen

    return look


def check_workers(seen: Mapping[str, Mapping[str, Any]], place: Place) -> None:
    """Refuse a cluster with a worker on which jobs could only fail; `seen` is what `probe` found on each."""
    if not seen:
        raise FairTestError(f"The cluster at {place.address!r} has no worker. Start one and give the command again.")
    digest = hashlib.sha256(place.file.read_bytes()).hexdigest() if place.file else None
    for worker, here in seen.items():
        if here["missing"]:
            raise _cannot_import(str(worker), here["missing"])
        if here["version"] != __version__:
            raise FairTestError(
                f"Worker {worker} has FairTest {here['version']}, this is {__version__}; one version makes a"
                f" study. Install it there: pip install epymarl-fairtest=={__version__}"
            )
        if here["digest"] != digest or here["unseen"]:
            unseen = here["unseen"][0] if here["unseen"] else place.file
            raise FairTestError(
                f"Worker {worker} does not see {str(unseen)!r}, or sees another one there. On a cluster --out and"
                " --policies must be on a filesystem that all workers share, under the same path."
            )


def _cannot_import(worker: str, module: str) -> FairTestError:
    ours = module.split(".")[0] == "epymarl_fairtest"
    return FairTestError(
        f"Worker {worker} cannot import {module!r}. Install {'epymarl-fairtest' if ours else 'that package'} into the"
        " Python environment of all workers, and start them again."
    )


def _not_installed(name: str, error: ImportError) -> FairTestError:
    return FairTestError(f'--backend {name} needs a library ({error}): pip install "epymarl-fairtest[{name}]"')


def _no_answer(place: Place, what: str, error: Exception) -> FairTestError:
    where = f"at {place.address!r}" if place.address else "on this machine"
    reason = " ".join(str(error).split()) or type(error).__name__
    token = " If the cluster asks for a token, set its RAY_AUTH_MODE and RAY_AUTH_TOKEN here, too."
    return FairTestError(
        f"--backend {place.backend}: there is no {what} {where} that answers within {place.timeout:g} s ({reason})."
        " Check --address, start the cluster, or allow more time with --timeout."
        + (token if place.backend == "ray" else "")
    )


def _gone(place: Place) -> FairTestError:
    return FairTestError(
        f"The {place.backend} cluster went away during the study. Finished jobs are kept; once it is back, the same"
        " command continues."
    )


async def _greet_dask(address: str, timeout: float) -> None:
    from distributed.comm import connect
    from distributed.security import Security

    secured = Security().get_connection_args("client")
    try:
        comm = await asyncio.wait_for(connect(address, timeout=timeout, **secured), timeout)
    except asyncio.TimeoutError as error:
        raise TimeoutError("nothing there speaks Dask's protocol") from error
    comm.abort()


def _greet_ray(address: str, timeout: float) -> None:
    """Is the port open, and does anything answer there? What it answers does not matter: Ray reports that better."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("an address is HOST:PORT, ray://HOST:PORT or auto")
    socket.create_connection((host, int(port)), timeout=timeout).close()
    if "://" not in address:
        words = ["-m", "ray.scripts.scripts", "health-check", "--skip-version-check", "--address", address]
        try:
            subprocess.run([sys.executable, *words], capture_output=True, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError("nothing there speaks Ray's protocol") from error


def _reason(error: BaseException | None) -> str:
    """One line: its workers were lost, or could not even read the work."""
    if isinstance(error, ModuleNotFoundError):
        return str(_cannot_import("of the cluster", error.name or str(error)))
    return f"the cluster could not run it ({type(error).__name__}: {' '.join(str(error).split())})"
