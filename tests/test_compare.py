"""`fairtest compare`: numbers against slow counting and published examples, refusals, the verdict, the figure."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.stats import mannwhitneyu
from support import lean_copy
from test_export import perturbed

from epymarl_fairtest.api.comparing import compared
from epymarl_fairtest.commands import main
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.core.statistics import newcombe, rate_of
from epymarl_fairtest.store.finished import FinishedRun, read_run

TRAINED = shipped("policies") / "mpe-qmix"
THETA = 0.85


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same search against the shipped team, against it from another seed, and against one with spoilt weights."""
    root = tmp_path_factory.mktemp("runs")
    trained = lean_copy(TRAINED, root / "trained team")
    spoilt = perturbed(TRAINED, root / "team", seed=0, size=0.15)
    for name, team, seed in (("trained", trained, 0), ("again", trained, 5), ("spoilt", spoilt, 0)):
        options = [
            "--budget",
            "400",
            "--seed",
            str(seed),
            "--set",
            f"theta={THETA}",
            "--set=candidates=random",
            "--out",
            str(root / name),
        ]
        assert main(["run", "--policy", str(team), *options]) == 0
    return root


def edited(run: Path, copy: Path, columns: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A copy with other settings (or, with `summary_` before the name, another summary)."""
    shutil.copytree(run, copy)
    (copy / "checksums.json").unlink(missing_ok=True)
    for file in ("manifest", "summary"):
        value = json.loads((copy / f"{file}.json").read_text())
        value.pop("crc", None)
        for name, new in changes.items():
            if file == "summary":
                value |= {name.removeprefix("summary_"): new} if name.startswith("summary_") else {}
            elif name in value["settings"]:
                value["settings"][name] = new
            elif name in value["settings"]["options"]:
                value["settings"]["options"][name] = new
            elif not name.startswith("summary_"):
                value[name] = new
        (copy / f"{file}.json").write_text(json.dumps(value))
    if columns:
        with np.load(run / "executions.npz") as file:
            np.savez(copy / "executions.npz", **{**{name: file[name] for name in file.files}, **columns})
    return copy


def rows_of(run: Path) -> list[dict[str, Any]]:
    with np.load(run / "executions.npz") as file:
        columns = {name: file[name].tolist() for name in ("purpose", "root_seed", "index", "received")}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def random_rows(run: Path) -> list[dict[str, Any]]:
    return [row for row in rows_of(run) if row["purpose"] in ("predictor", "candidate")]


def result(a: Path, b: Path, **how: Any) -> dict[str, Any]:
    return compared(read_run(a), read_run(b), **how)


# --- numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("b", "a", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),  # Newcombe, Statistics in Medicine 17 (1998), table II, method 10
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 10), 0.6075, 1.0000),
    ],
)
def test_the_interval_of_the_difference_is_the_published_one(b: Any, a: Any, low: float, high: float) -> None:
    found = newcombe(rate_of(*b, 0.95), rate_of(*a, 0.95), 0.95)
    assert found == pytest.approx((low, high), abs=6e-5)


def test_both_sides_are_what_slow_counting_gives(runs: Path) -> None:
    found = result(runs / "trained", runs / "spoilt")
    for side, name in (("a", "trained"), ("b", "spoilt")):
        rows, judged = random_rows(runs / name), rows_of(runs / name)
        summary = json.loads((runs / name / "summary.json").read_text())
        index = [row["index"] for row in rows]
        unfair = sum(value <= THETA for value in index)
        rate = rate_of(unfair, len(rows), 0.95)
        told = found[side]
        assert told["rate"] == {"estimate": unfair / len(rows), "low": rate.low, "high": rate.high}
        assert (told["random_failures"], told["random_executions"]) == (unfair, len(rows))
        assert (told["index_median"], told["index_lowest"]) == (np.median(index), min(index))
        assert told["failures"] == sum(row["index"] <= THETA for row in judged) == summary["failures"]
        for key in ("distinct_failures", "roots", "coverage", "evaluated"):
            assert told[key] == summary[key]
        assert told["worst_off"] == summary["worst_off"]
        assert told["received"] == pytest.approx(
            [sum(row["received"][i] for row in rows) / len(rows) for i in range(3)]
        )


def test_the_index_is_compared_by_rank(runs: Path) -> None:
    a, b = ([row["index"] for row in random_rows(runs / name)] for name in ("trained", "spoilt"))
    found = result(runs / "trained", runs / "spoilt")["index_of_b_over_a"]
    more = sum(x > y for x in b for y in a) + 0.5 * sum(x == y for x in b for y in a)
    assert found["a12"] == pytest.approx(more / len(a) / len(b))
    assert found["p"] == mannwhitneyu(b, a, alternative="two-sided").pvalue
    assert found["letter"] in "SML"
    back = result(runs / "spoilt", runs / "trained")["index_of_b_over_a"]
    assert back["a12"] == pytest.approx(1 - found["a12"])


def test_the_fairer_team_is_named_whichever_comes_first(runs: Path) -> None:
    one, other = result(runs / "trained", runs / "spoilt"), result(runs / "spoilt", runs / "trained")
    assert (one["fairer"], other["fairer"]) == ("a", "b")
    low, high = one["difference"]["low"], one["difference"]["high"]
    assert 0 < low < one["difference"]["estimate"] < high
    assert (other["difference"]["low"], other["difference"]["high"]) == pytest.approx((-high, -low))
    bounds = f"is fairer: its natural rate is lower by {low:.4f} to {high:.4f} (95% confidence)."
    assert (one["verdict"], other["verdict"]) == (f"A {bounds}", f"B {bounds}")


def test_no_difference_is_shown_where_there_is_none(runs: Path) -> None:
    found = result(runs / "trained", runs / "again")
    assert found["difference"]["low"] <= 0 <= found["difference"]["high"]
    assert found["fairer"] is None
    assert found["verdict"].startswith("No difference could be shown (B's natural rate minus A's is between")
    assert found["warnings"] == ["both runs tested the same weights: any difference is chance."]
    assert result(runs / "trained", runs / "spoilt")["warnings"] == []


def test_more_confidence_needs_more_evidence(runs: Path) -> None:
    wide, narrow = (result(runs / "trained", runs / "spoilt", confidence=c) for c in (0.999, 0.5))
    for key in ("low", "high"):
        assert abs(wide["difference"][key] - wide["difference"]["estimate"]) > abs(
            narrow["difference"][key] - narrow["difference"]["estimate"]
        )
    assert wide["a"]["rate"]["high"] > narrow["a"]["rate"]["high"]


# --- what must be the same ----------------------------------------------------------------------------

UNLIKE: dict[str, tuple[dict[str, Any], str]] = {
    "task": ({"task": "tag"}, "task 'spread' and 'tag'"),
    "environment": ({"key": "other-v0"}, "environment 'epymarl_fairtest:mpe-spread-v0' and 'other-v0'"),
    "index": ({"index": "gini"}, "index 'jfi' and 'gini'"),
    "allocation": ({"allocation": "mine:paid"}, "allocation 'env' and 'mine:paid'"),
    "execution": ({"execution": "greedy"}, "execution 'epsilon_greedy epsilon=0.05' and 'greedy'"),
    "epsilon": ({"epsilon": 0.1}, "execution 'epsilon_greedy epsilon=0.05' and 'epsilon_greedy epsilon=0.1'"),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_runs_that_differ_in_more_than_the_team_are_refused_with_both_values(
    name: str, runs: Path, tmp_path: Path
) -> None:
    changes, part = UNLIKE[name]
    other = edited(runs / "spoilt", tmp_path / "other", **changes)
    with pytest.raises(FairTestError, match="cannot be compared") as caught:
        result(runs / "trained", other)
    assert part in str(caught.value)


def test_a_setting_that_the_execution_does_not_read_is_no_difference(runs: Path, tmp_path: Path) -> None:
    other = edited(runs / "spoilt", tmp_path / "other", temperature=3.0, seed=9, workers=1, replay=5, out="elsewhere")
    assert result(runs / "trained", other)["warnings"] == []


def test_teams_of_different_sizes_are_refused(runs: Path, tmp_path: Path) -> None:
    received = np.array([row["received"] for row in rows_of(runs / "spoilt")])[:, :2]
    other = edited(runs / "spoilt", tmp_path / "other", {"received": received})
    with pytest.raises(FairTestError, match="number of agents 3 and 2"):
        result(runs / "trained", other)


def test_different_thresholds_are_refused_until_both_are_judged_with_one(runs: Path, tmp_path: Path) -> None:
    theta = 0.8
    rows = rows_of(runs / "spoilt")
    other = edited(
        runs / "spoilt", tmp_path / "other", theta=theta, summary_theta=theta,
        summary_failures=sum(row["index"] <= theta for row in rows),
    )  # fmt: skip
    with pytest.raises(FairTestError, match=r"different thresholds, 0.85 in .* and 0.8 in .*--theta 0.85"):
        result(runs / "trained", other)
    found = result(runs / "trained", other, theta=0.82)
    for side, name in (("a", "trained"), ("b", "spoilt")):
        unfair = [row for row in rows_of(runs / name) if row["index"] <= 0.82]
        ordinary = [row for row in random_rows(runs / name) if row["index"] <= 0.82]
        assert (found[side]["failures"], found[side]["random_failures"]) == (len(unfair), len(ordinary))
        assert found[side]["roots"] == len({row["root_seed"] for row in unfair})
        assert found[side]["distinct_failures"] is None  # only the run itself could have told
        assert found[side]["coverage"] is None
    own = result(runs / "trained", other, theta=THETA)
    assert (own["a"]["distinct_failures"] is None, own["b"]["distinct_failures"] is None) == (False, True)


def test_searches_of_different_size_are_warned_about_with_both_values(runs: Path, tmp_path: Path) -> None:
    other = edited(runs / "spoilt", tmp_path / "other", budget=800, rounds=5)
    (warning,) = result(runs / "trained", other)["warnings"]
    assert "budget 400 and 800, rounds 3 and 5" in warning
    assert "do not compare what they found" in warning


def test_a_team_that_looks_fairer_because_it_achieves_nothing_is_warned_about(runs: Path, tmp_path: Path) -> None:
    run = runs / "spoilt"
    index = np.array([row["index"] for row in rows_of(run)])
    index[::2] = np.nan
    counts = {"summary_failures": int((index <= THETA).sum()), "summary_undefined": int(np.isnan(index).sum())}
    other = edited(run, tmp_path / "other", {"index": index}, **counts)
    found = result(run, other)
    empty = sum(
        np.isnan(index[i]) for i, row in enumerate(rows_of(run)) if row["purpose"] in ("predictor", "candidate")
    )
    assert found["b"]["random_undefined"] == empty > 0
    assert any("nobody received anything" in warning and "0% of A's" in warning for warning in found["warnings"])


def test_a_run_without_random_executions_is_refused(runs: Path, tmp_path: Path) -> None:
    count = len(rows_of(runs / "spoilt"))
    columns = {"purpose": np.full(count, "mutant"), "random": np.zeros(count, bool)}
    other = edited(runs / "spoilt", tmp_path / "other", columns)
    with pytest.raises(FairTestError, match="holds no random executions"):
        result(runs / "trained", other)


# --- the command --------------------------------------------------------------------------------------


def test_the_table_tells_what_json_tells(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", str(runs / "trained"), str(runs / "spoilt")]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(json.dumps(result(runs / "trained", runs / "spoilt")))
    assert main(words) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert said.err == ""
    assert lines[-1] == found["verdict"]
    rate = next(line for line in lines if "natural rate" in line)
    for side in ("a", "b"):
        assert "{estimate:.4f} [{low:.4f}, {high:.4f}]".format(**found[side]["rate"]) in rate
        for key in ("failures", "distinct_failures", "roots"):
            assert any(f"{found[side][key]:,}" in line.split() for line in lines)
    assert f"A12 {found['index_of_b_over_a']['a12']:.3f} ({found['index_of_b_over_a']['letter']})" in said.out


def test_warnings_go_to_the_error_output(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs / "trained"), str(runs / "again")]) == 0
    said = capsys.readouterr()
    assert "the same weights" in said.err
    assert "the same weights" not in said.out


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_figure_is_drawn_and_the_same_numbers_give_the_same_bytes(
    ending: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"{n}.{ending}" for n in (1, 2)]
    for file in files:
        assert main(["compare", str(runs / "trained"), str(runs / "spoilt"), "--figure", str(file)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    if ending == "png":
        assert files[0].read_bytes().startswith(b"\x89PNG")
    elif ending == "pdf":
        assert files[0].read_bytes().startswith(b"%PDF")
    else:
        comments = [str(node.text) for node in iterate_with_comments(files[0]) if not isinstance(node.tag, str)]
        told = " ".join(comments)
        for part in ("A: trained", "B: spoilt", "unfair: at most 0.85", "A is fairer"):
            assert part in told


def iterate_with_comments(file: Path) -> Any:
    """Text is drawn as shapes, with the words in a comment."""
    builder = ElementTree.TreeBuilder(insert_comments=True)
    return ElementTree.parse(file, ElementTree.XMLParser(target=builder)).iter()


@pytest.mark.slow
def test_a_figure_without_a_single_defined_index_can_be_drawn(runs: Path, tmp_path: Path) -> None:
    run = runs / "spoilt"
    number = len(rows_of(run))
    empty = edited(
        run, tmp_path / "a$b$", {"index": np.full(number, np.nan)}, summary_failures=0, summary_undefined=number
    )
    other = Path(shutil.copytree(empty, tmp_path / "other"))
    assert main(["compare", str(empty), str(other), "--figure", str(tmp_path / "it.png")]) == 0
    with Image.open(tmp_path / "it.png") as picture:
        darkest, lightest = picture.convert("L").getextrema()
    assert (int(darkest) < 100, lightest) == (True, 255)


def test_three_runs_give_rate_against_return_and_say_who_is_beaten_in_both(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(runs / name) for name in ("trained", "spoilt", "again")]
    assert main(["compare", *names, "--json", "--figure", str(tmp_path / "it.svg")]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)["runs"]
    assert [one["run"] for one in found] == names
    for one, name in zip(found, ("trained", "spoilt", "again"), strict=True):
        rows = random_rows(runs / name)
        received = np.array([row["received"] for row in rows])
        assert one["rate"] == sum(row["index"] <= THETA for row in rows) / len(rows)
        assert one["team_return"] == pytest.approx(received.sum(axis=1).mean())
        assert one["worst_off"] == pytest.approx(received.min(axis=1).mean())
        better = [
            other["run"] for other in found
            if other is not one and other["rate"] <= one["rate"] and other["team_return"] >= one["team_return"]
        ]  # fmt: skip
        assert (one["beaten_by"] in better) if better else one["beaten_by"] is None
    assert (tmp_path / "it.svg").stat().st_size > 1000
    assert main(["compare", *names[:2], "--trade-off"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[:3] == ["run", "natural", "rate"]
    assert main(["compare", *names, names[0]]) == 2
    assert "named twice" in capsys.readouterr().err


MISTAKES: dict[str, tuple[list[str], str]] = {
    "the same run": (["A", "A"], "are the same run"),
    "the same run by another way": (["A", "LINK"], "are the same run"),
    "no run": (["A", "nowhere"], "There is no folder 'nowhere'"),
    "theta 0": (["A", "B", "--theta", "0"], "--theta 0.0 is not allowed"),
    "theta nan": (["A", "B", "--theta", "nan"], "--theta nan is not allowed"),
    "confidence": (["A", "B", "--confidence", "1"], "--confidence 1.0 is not allowed"),
    "confidence nan": (["A", "B", "--confidence", "nan"], "--confidence nan is not allowed"),
    "format of the figure": (["A", "B", "--figure", "it.jpg"], "--figure 'it.jpg' must be a .png, .svg, .pdf"),
    "folder of the figure": (["A", "B", "--figure", "nowhere/it.png"], "in a folder that exists"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message_and_exit_code_2(
    name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, part = MISTAKES[name]
    (tmp_path / "link").symlink_to(runs / "trained")
    places = {"A": runs / "trained", "B": runs / "spoilt", "LINK": tmp_path / "link"}
    assert main(["compare", *(str(places.get(word, word)) for word in words)]) == 2
    said = capsys.readouterr()
    assert part in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_an_unfinished_run_is_refused(runs: Path, tmp_path: Path) -> None:
    copy = edited(runs / "spoilt", tmp_path / "copy")
    assert isinstance(read_run(copy), FinishedRun)
    (copy / "summary.json").unlink()
    with pytest.raises(FairTestError, match=f"is not finished.*--resume {copy}"):
        read_run(copy)
