"""`fairtest run` loads scikit-learn without pandas and without tables in docstrings; it works as always."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import policy_folder

from epymarl_fairtest.commands.lean import lean_imports

BEFORE = """
import sys
import scipy._lib._array_api as tables
from epymarl_fairtest.commands.lean import lean_imports
finders, adding = list(sys.meta_path), getattr(tables, "xp_capabilities", None)
"""
INSIDE = """
with lean_imports():
    import sklearn.ensemble
"""
AFTER = """
assert sys.meta_path == finders
assert getattr(tables, "xp_capabilities", None) is adding
assert sys.modules.get("pandas", sys) is not None
"""


def succeeds(*parts: str) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", "".join(parts)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_pandas_is_not_loaded_and_can_be_loaded_afterwards() -> None:
    pytest.importorskip("pandas")
    told = """
assert "pandas" not in sys.modules
import pandas, numpy
table = pandas.DataFrame({"one": numpy.arange(50.0), "two": numpy.arange(50.0) % 7})
forest = sklearn.ensemble.RandomForestClassifier(3, random_state=0).fit(table, table["two"] > 3)
assert list(forest.feature_names_in_) == ["one", "two"]
"""
    succeeds(BEFORE, INSIDE, AFTER, told)


def test_docstrings_are_there_and_other_parts_of_scipy_and_sklearn_load_afterwards() -> None:
    told = """
import scipy.stats, scipy.stats.mstats, scipy.signal, scipy.ndimage, scipy.optimize, sklearn.mixture, sklearn.metrics
assert "Parameters" in scipy.stats.rankdata.__doc__
assert scipy.stats.rankdata([3.0, 1.0]).tolist() == [2.0, 1.0]
"""
    succeeds(BEFORE, INSIDE, AFTER, told)


def test_who_has_imported_pandas_keeps_it() -> None:
    pytest.importorskip("pandas")
    succeeds(BEFORE, "import pandas", INSIDE, AFTER, "assert sys.modules['pandas'] is pandas")


def test_who_has_imported_scikit_learn_keeps_it() -> None:
    succeeds(BEFORE, "import sklearn; first = sklearn", INSIDE, AFTER, "assert sys.modules['sklearn'] is first")


def test_a_scipy_that_adds_no_tables_is_left_alone() -> None:
    succeeds(
        BEFORE,
        "vars(tables).pop('xp_capabilities', None); adding = None\n",
        "from epymarl_fairtest.commands.lean import _plain_docstrings\nwith _plain_docstrings():\n    pass\n",
        AFTER,
    )


def test_nothing_is_left_where_something_fails_inside() -> None:
    finders = list(sys.meta_path)
    with pytest.raises(ZeroDivisionError), lean_imports():
        raise ZeroDivisionError
    assert sys.meta_path == finders


@pytest.mark.parametrize(("method", "loads"), [("start_surrogate", True), ("random", False)])
def test_a_run_needs_no_pandas(tmp_path: Path, method: str, loads: bool) -> None:
    pytest.importorskip("pandas")
    team = policy_folder(tmp_path / "team", "spread", "mlp")
    words = ["run", "--policy", str(team), "--out", str(tmp_path / "run"), "--method", method, "--budget", "60"]
    words += ["--set", "explain=0", "--set", "report=false"]
    program = f"""
import sys
from epymarl_fairtest.commands import main
code = main({words})
assert ("sklearn" in sys.modules) == {loads}
assert "pandas" not in sys.modules
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
