"""The page of a run with 10,000 failures: its size, and what opening it and one of its failures takes in a browser.

    python -m benchmarks.page [--policies policies/pp-iql policies/lbf-iql] [--run RUN]

Random executions with a threshold that calls nearly all of them unfair; `--run` measures the page of a run that is
there. Needs chromium and chromedriver. Milliseconds of the browser's main thread, which other processes do not stretch,
with the wall clock beside them. At most 5 MB, and a second for either (exit code 1 otherwise).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import epymarl_fairtest as fairtest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
EPISODES: dict[str, Any] = {"budget": 12_000, "theta": 0.995}  # about 10,500 failures
BARE: dict[str, Any] = {"method": "random", "explain": 0, "replay": 0, "random_team": 0, "progress": False}
MOST_BYTES, MOST_SECONDS = 5_000_000, 1.0
LAST = """
const done = arguments[0], table = document.getElementById('failures');
table.querySelector('th[data-column=index] button').click();
const button = table.querySelector('.opens');
new MutationObserver((_, watch) => { if (document.querySelector('.opened .player')) { watch.disconnect(); done(); } })
  .observe(table, {childList: true, subtree: true});
button.click()"""


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window, with the logs that tests read."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    with tempfile.TemporaryDirectory() as folder:
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        try:
            yield driver
        finally:
            driver.quit()


def busy(driver: Any) -> float:
    """Seconds that the main thread has worked since this page was asked for."""
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")


def measured(driver: Any, page: Path) -> dict[str, float]:
    """Opening the page, and then the failure at the end of its table."""
    driver.get("about:blank")
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    began = time.perf_counter()
    driver.get(page.as_uri())
    load, wall = busy(driver), time.perf_counter() - began
    began = time.perf_counter()
    driver.execute_async_script(LAST)
    row, row_wall = busy(driver), time.perf_counter() - began
    return {"load": load, "load wall": wall, "row": row - load, "row wall": row_wall}


def tell(driver: Any, run: Path) -> bool:
    """A line for this run's page; is everything within the bounds?"""
    page, failures = run / "report" / "index.html", fairtest.load(run).summary["failures"]
    size = page.stat().st_size
    runs = [measured(driver, page) for _ in range(3)]
    best = {name: min(one[name] for one in runs) for name in runs[0]}
    told = ", ".join(f"{name} {1000 * seconds:.0f} ms" for name, seconds in best.items())
    print(f"{run.name}: {failures:,} failures, {size / 1e6:.2f} MB; best of 3: {told}", flush=True)
    return size <= MOST_BYTES and max(best["load"], best["row"]) <= MOST_SECONDS


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=Path, nargs="+", default=[Path("policies/pp-iql"), Path("policies/lbf-iql")])
    parser.add_argument("--run", type=Path)
    args = parser.parse_args(given)
    if not (CHROMIUM and DRIVER):
        raise SystemExit("no chromium and chromedriver on PATH: apt install chromium chromium-driver")
    with tempfile.TemporaryDirectory() as folder, browser() as driver:
        runs = [args.run] if args.run else [
            fairtest.test(policy, out=Path(folder) / policy.name, **EPISODES, **BARE).path for policy in args.policies
        ]  # fmt: skip
        fits = [tell(driver, run) for run in runs]
        return int(not all(fits))


if __name__ == "__main__":
    sys.exit(main())
