"""`fairtest policies check`: complete and competent teams pass, and nothing else does."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support import policy_folder

from epymarl_fairtest.commands import policies
from epymarl_fairtest.commands.policies import FILES, add_parser, first_half, interval, team_returns
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.team.saved import saved_team

EPISODES = 60
HEADER = "training_steps,test_return_mean,test_return_std\n"
LEARNED = HEADER + "25,-120,29\n50025,-60,7\n100025,-50,9\n200025,-40,8\n"  # first half: -55


def check(*words: object) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    args = parser.parse_args(["policies", "check", *map(str, words)])
    code: int = args.func(args)
    return code


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A copy of a shipped team that learned slowly."""
    folder = Path(shutil.copytree(shipped("policies") / "mpe-qmix", tmp_path / "slow"))
    (folder / "learning_curve.csv").write_text(LEARNED)
    return folder


def gates(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, tuple[bool, str]]:
    """The gates of the only team, by name, and the size of all."""
    code = check(*words, "--episodes", EPISODES, "--json")
    result = json.loads(capsys.readouterr().out)
    found = {gate["name"]: (gate["passed"], gate["words"]) for gate in result["gates"]}
    assert len(found) == len(result["gates"])
    assert result["episodes"] == EPISODES
    assert result["passed"] == all(passed for passed, _ in found.values()) == (code == 0)
    assert code in (0, 1)
    return found


# --- a team of the particle world ---------------------------------------------------------------------


def test_a_team_that_learned_passes_every_gate(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = gates(capsys, trained)
    assert all(passed for passed, _ in found.values())
    assert list(found) == ["files", "command", "random team", "first half", "size"]


def test_a_team_that_was_as_good_at_half_its_training_fails(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (trained / "learning_curve.csv").write_text(LEARNED.replace("-60", "-1").replace("-50", "-1"))
    found = gates(capsys, trained)
    assert {name for name, (passed, _) in found.items() if not passed} == {"first half"}


def test_random_weights_are_no_better_than_a_random_team(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = policy_folder(tmp_path / "untrained")
    shutil.copy(shipped("policies") / "mpe-qmix" / "learning_curve.csv", folder)
    found = gates(capsys, folder)
    assert {name for name, (passed, _) in found.items() if not passed} == {
        "files", "command", "random team", "first half",
    }  # fmt: skip
    assert found["files"][1] == "missing: training_pool.npz"


def test_the_random_team_plays_the_same_seeds_with_random_actions(trained: Path) -> None:
    team = saved_team(trained, "env")
    returns = {how: team_returns(team, 300, execution=how, epsilon=1.0) for how in ("greedy", "epsilon_greedy")}
    assert np.array_equal(returns["greedy"], team_returns(team, 300, execution="greedy"))
    # Both start from the same places: far from the landmarks is far for either.
    assert np.corrcoef(returns["greedy"], returns["epsilon_greedy"])[0, 1] > 0.15
    low, high = interval(returns["greedy"] - returns["epsilon_greedy"])
    assert 0 < low < high


def test_the_interval_is_students() -> None:
    differences = np.random.default_rng(0).normal(1, 2, 30)
    known = stats.ttest_1samp(differences, 0).confidence_interval(0.99)
    assert interval(differences) == pytest.approx((known.low, known.high))


# --- foraging -----------------------------------------------------------------------------------------


def test_the_most_that_a_foraging_team_can_receive_is_1(tmp_path: Path) -> None:
    small = {"field_size": [5, 5], "max_num_food": 1, "max_food_level": 1}
    folder = policy_folder(tmp_path / "small", "foraging", env_args=small, obs_size=12)
    received = team_returns(saved_team(folder, "env"), 200, execution="epsilon_greedy", epsilon=1.0)
    assert set(np.round(received, 9)) == {0.0, 1.0}  # the only food is eaten, or it is not


@pytest.mark.parametrize(
    ("received", "failing"),
    [
        (95 * [0.8] + 5 * [0.0], set()),
        (100 * [0.7], set()),
        (100 * [0.69], {"return"}),
        (90 * [1.0] + 10 * [0.0], {"empty episodes"}),
        (50 * [1.0] + 50 * [0.0], {"return", "empty episodes"}),
    ],
)
def test_a_foraging_team_needs_most_of_the_food_in_nearly_every_episode(
    received: list[float], failing: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = policy_folder(tmp_path / "team", "foraging", command="train")
    for name in ("learning_curve.csv", "training_pool.npz"):
        shutil.copy(shipped("policies") / "lbf-qmix" / name, folder)
    played = {"auto": np.array(received), "greedy": np.zeros(100)}  # as it is tested, and as it is not
    monkeypatch.setattr(policies, "team_returns", lambda *args, execution: played[execution])
    found = gates(capsys, folder)
    assert list(found) == ["files", "command", "return", "empty episodes", "size"]
    assert {name for name, (passed, _) in found.items() if not passed} == failing


def test_a_foraging_team_with_random_weights_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = gates(capsys, policy_folder(tmp_path / "team", "foraging"))
    assert not found["return"][0]
    assert not found["empty episodes"][0]


def test_food_that_is_not_normalised_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = gates(capsys, policy_folder(tmp_path / "team", "foraging", env_args={"normalize_reward": False}))
    assert not found["readable"][0]
    assert "does not normalise" in found["readable"][1]


@pytest.fixture
def nobody_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns without an execution, as a good team and as a random one would have them."""
    noise = np.linspace(-1, 1, EPISODES)
    monkeypatch.setattr(
        policies, "team_returns", lambda *args, execution, **how: noise - (30 if execution == "greedy" else 60)
    )


# --- folders ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
@pytest.mark.usefixtures("nobody_plays")
def test_a_missing_file_fails_and_is_named(name: str, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (trained / name).unlink()
    found = gates(capsys, trained)
    assert found["files"] == (False, f"missing: {name}")


@pytest.mark.usefixtures("nobody_plays")
def test_a_team_without_the_command_that_trained_it_fails(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (trained / "policy.yaml").read_text()
    start, end = text.index("command:"), text.index("format:")
    (trained / "policy.yaml").write_text(text[:start] + text[end:])
    found = gates(capsys, trained)
    assert {name for name, (passed, _) in found.items() if not passed} == {"command"}


@pytest.mark.parametrize(
    "curve",
    [
        "",
        "steps,return\n25,-3\n",
        HEADER,
        HEADER + "25,-120,29\n",
        HEADER + "25,-120,29\n200025,-40,8\n",
        HEADER + "25,-120\n100025,nan,1\n200025,-40,8\n",
        HEADER + "25\n",
        HEADER + "many,-120,29\n",
    ],
)
def test_a_curve_that_tells_nothing_is_refused(curve: str, tmp_path: Path) -> None:
    (tmp_path / "curve.csv").write_text(curve)
    with pytest.raises(FairTestError, match=r"curve\.csv"):
        first_half(tmp_path / "curve.csv")


def test_the_first_half_has_the_test_at_half_and_not_the_one_before_training(tmp_path: Path) -> None:
    (tmp_path / "curve.csv").write_text(LEARNED)
    assert first_half(tmp_path / "curve.csv") == -55


@pytest.mark.usefixtures("nobody_plays")
def test_a_damaged_team_does_not_hide_the_others(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = Path(shutil.copytree(trained, tmp_path / "damaged"))
    (damaged / "agent.th").write_bytes(b"PK")
    assert check(damaged, trained, "--episodes", EPISODES) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ok", "ok", "FAIL", "ok", "ok", "ok", "ok", "ok", "7"]
    assert lines[-1] == "7 of 8 gates passed."


@pytest.mark.usefixtures("nobody_plays")
def test_all_folders_together_must_be_small(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (trained / "notes.bin").open("wb") as file:
        file.truncate(24_000_000)
    found = gates(capsys, trained)
    assert {name for name, (passed, _) in found.items() if not passed} == {"size"}


def test_one_folder_is_called_one(trained: Path) -> None:
    assert "MB in 1 folder; below" in policies.size_gate([trained]).words
    assert "MB in 2 folders; below" in policies.size_gate([trained, trained]).words


def test_without_folders_all_that_are_shipped_are_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(policies, "team_gates", lambda folder, episodes: seen.append(folder.name) or [])
    assert check() == 0
    assert {"mpe-qmix", "pp-iql"} <= set(seen)
    assert seen == sorted(seen)
    assert capsys.readouterr().out.endswith("1 of 1 gates passed.\n")


@pytest.mark.parametrize(
    ("words", "told"), [(["nowhere"], "no policy folder 'nowhere'"), (["--episodes", "3"], "--episodes 3 is too few")]
)
def test_what_cannot_be_checked_is_refused(words: list[Any], told: str) -> None:
    with pytest.raises(FairTestError, match=told):
        check(*words)
