"""`agents`: which agents form the team that is judged. In mpe2's simple_adversary, agent 1 plays against 2 and 3."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from mpe2 import simple_adversary_v3
from support import policy_folder, random_weights, training_sample
from test_search import chosen, search, team

from epymarl_fairtest.campaign.cautions import cautions, competence_rows
from epymarl_fairtest.commands import main
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judge, of_agents, places_of, totals
from epymarl_fairtest.settings import FIELDS, checked_settings, merged
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.tasks.layers import sides
from epymarl_fairtest.team.checkpoint import PolicyRecord, save_policy
from epymarl_fairtest.testing.regression import replay_failure

KEY = "Adversary-v0"


class Adversary(gymnasium.Env[Any, Any]):
    """simple_adversary as hosts' gymma wrappers give it: tuples over the agents."""

    def __init__(self) -> None:
        self._inside = simple_adversary_v3.parallel_env(N=2, max_cycles=8)
        self.possible_agents = self._inside.possible_agents
        self.action_space = gymnasium.spaces.Tuple([self._inside.action_space(a) for a in self.possible_agents])
        self.observation_space = gymnasium.spaces.Tuple(
            [self._inside.observation_space(a) for a in self.possible_agents]
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        seen, _ = self._inside.reset(seed=seed)
        return tuple(seen[agent] for agent in self.possible_agents), {}

    def step(self, action: Any) -> Any:
        seen, paid, ended, cut, _ = self._inside.step(dict(zip(self.possible_agents, map(int, action), strict=True)))
        agents = self.possible_agents
        return tuple(seen[a] for a in agents), [paid[a] for a in agents], all(ended.values()), all(cut.values()), {}


@pytest.fixture(scope="module")
def opponents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if KEY not in gymnasium.registry:
        gymnasium.register(KEY, entry_point=Adversary)
    record = PolicyRecord(
        algorithm="iql", key=KEY, time_limit=8, n_agents=3, n_actions=5, obs_size=10, hidden_dim=8, use_rnn=False,
        obs_last_action=False, obs_agent_id=True,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("team") / "team"
    save_policy(folder, record, random_weights(record))
    return folder


@pytest.fixture(scope="module")
def run_of(opponents: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def run(*settings: str) -> Path:
        out = tmp_path_factory.mktemp("runs") / "run"
        assert called("run", "--policy", opponents, "--out", out, *settings) == 0
        return out

    return run


def called(command: str, *arguments: Any) -> int:
    return main([command, *map(str, arguments)])


def summary_of(run: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return summary


SMALL = ("--method=random", "--set=budget=40", "--set=progress=false", "--set=report=false", "--set=theta=1")


def test_opponents_are_told_apart_and_the_remedy_judges_one_side(
    run_of: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    everybody, team = run_of(*SMALL), run_of(*SMALL, "--set=agents=[2, 3]")
    told = capsys.readouterr().out
    assert "does not compare opponents" in told
    assert summary_of(everybody)["sides"] == {"adversary": [1], "agent": [2, 3]}
    (caution,) = [one for one in cautions(summary_of(everybody)) if "opponents" in one]
    assert "adversary (1) and agent (2, 3)" in caution
    assert caution.endswith("agents=[2, 3].")
    assert not [one for one in cautions(summary_of(team)) if "opponents" in one]
    # The episodes are the same ones; index, totals and verdict are those of the two.
    whole, part = read_run(everybody), read_run(team)
    assert (whole.executions["root_seed"] == part.executions["root_seed"]).all()
    both = whole.executions["received"][:, 1:]
    assert (part.executions["received"] == both).all()
    np.testing.assert_array_equal(part.executions["index"], jfi(both))
    assert (part.unfair() == (jfi(both) <= 1)).all()
    assert part.manifest["settings"]["agents"] == [2, 3]
    assert [one["agent"] for one in summary_of(team)["worst_off"]["least"]] == [2, 3]
    assert dict(competence_rows(summary_of(team)))["  per agent"].startswith("agent 2")


@pytest.mark.slow
def test_page_replay_and_export_judge_the_same_agents(
    run_of: Callable[..., Path], opponents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(*SMALL, "--set=random_team=10", "--set=agents=[3, 1]", "--seed=1")
    record = read_run(run)
    assert record.summary["failures"] > 3
    assert record.failures["received"].shape[1] == 2
    assert called("report", run) == 0
    page = (run / "report" / "index.html").read_text().replace("\u00a0", " ")
    assert '<th scope="col">agent 3</th><th scope="col">agent 1</th>' in page
    capsys.readouterr()
    assert called("replay", run, "--json") == 0
    again = json.loads(capsys.readouterr().out)["replays"]
    index = dict(zip(record.failures["id"].tolist(), record.failures["index"].tolist(), strict=True))
    assert {one["id"]: one["index"] for one in again} == {one["id"]: index[one["id"]] for one in again}
    ids = record.failures["id"][:2].tolist()
    test_file = tmp_path / "test_fair.py"
    assert called("export", run, "--pytest", test_file, "--ids", *ids) == 0
    outcome = replay_failure(test_file.with_name("test_fair_failures.npz"), ids[0], opponents)
    assert outcome.unfair
    assert outcome.index == index[ids[0]]
    assert outcome.agents == (3, 1)
    assert outcome.sentence.count("agent 3") == 1


@pytest.mark.slow
def test_in_a_random_team_only_the_judged_agents_act_at_random(run_of: Callable[..., Path]) -> None:
    summary = summary_of(run_of(*SMALL, "--set=agents=[2, 3]", "--set=random_team=20"))
    random = summary["competence"]["random_team"]
    assert (random["starts"], len(random["received"])) == (20, 2)
    assert summary["ledger"]["random_team"]["episodes"] == 20
    assert summary["executed_episodes"] == 40
    assert summary_of(run_of(*SMALL, "--set=random_team=0"))["competence"]["random_team"] is None


@pytest.mark.parametrize(
    "agents", ["some", [1], [], [0, 1], [1, 1], [1.5, 2], [True, 2], [1, None], {"1": 2}, 3, None, [1, 2**70]]
)
def test_what_is_no_team_is_refused(agents: Any) -> None:
    with pytest.raises(FairTestError, match=r"fairtest_args\.agents.*It must be all, or a list of at least two"):
        configure({"agents": agents})


def test_an_agent_that_is_not_there_is_refused_before_anything_is_written(
    opponents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert called("run", "--policy", opponents, "--out", out, "--set=agents=[2, 4]") != 0
    assert "names agent 4, but the environment has 3 agents; name some of 1 to 3, or all." in capsys.readouterr().err
    assert not out.exists()


def test_a_list_of_sacreds_own_kind_is_kept_as_a_plain_one() -> None:
    class ReadOnlyList(list[int]):
        def append(self, value: Any) -> None:
            raise RuntimeError("read only")

    defaults = {name: value for name, value in merged({}).items() if name in FIELDS}
    settings = checked_settings({**defaults, "agents": ReadOnlyList([1, 2])})
    assert type(settings.agents) is list


def test_all_agents_are_judged_bit_by_bit_as_before() -> None:
    rewards = np.random.default_rng(0).normal(size=(5, 4, 3))
    assert of_agents(rewards, "all") is rewards
    assert (Judge(jfi, 0.8).received(rewards) == totals(rewards)).all()
    assert (Judge(jfi, 0.8, [3, 1]).received(rewards) == totals(rewards)[:, [2, 0]]).all()
    assert places_of("all", 3) == [0, 1, 2]


def test_sides_are_named_only_where_they_are_those_of_the_agents_under_test() -> None:
    class Named:
        def __init__(self, *names: str) -> None:
            self.possible_agents = list(names)

    assert sides(Named("adversary_0", "agent_0", "agent_1"), 3) == {"adversary": [1], "agent": [2, 3]}
    assert sides(Named("adversary_0", "adversary_1", "agent_0"), 2) is None  # a prey that is not under test
    assert sides(Named("agent_0", "agent_1"), 2) is None
    assert sides(Named("speaker_0", "listener_0"), 2) is None  # two of a pair, as far as names tell
    assert sides(None, 2) is None


@pytest.mark.slow
def test_a_training_sample_is_judged_on_the_same_agents(tmp_path: Path) -> None:
    """The predictor learns from it what the judge says of the two, beside executions of the same two."""
    result = search(replace(team(), sample=training_sample()), chosen(agents=[1, 2]), tmp_path / "run")
    alike = result.summary["predictor"]
    third = search(replace(team(), sample=training_sample()), chosen(agents=[1, 3]), tmp_path / "other")
    assert alike["unfair"] < third.summary["predictor"]["unfair"]  # the third receives more in every other one


def test_a_gate_takes_the_setting(tmp_path: Path) -> None:
    team = policy_folder(tmp_path / "team", time_limit=6)
    arguments = ("--policy", team, "--set=agents=[1, 2]", "--set=budget=40", "--set=theta=0.9", "--method=random")
    assert called("gate", *arguments, "--out", tmp_path / "gate", "--max-rate=1") in (0, 1)
    found = list(tmp_path.glob("gate/**/manifest.json"))
    assert json.loads(found[0].read_text())["settings"]["agents"] == [1, 2]
