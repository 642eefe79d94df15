"""GMT: its diffusion against closed forms and slow references, novelty, what is skipped, and exact repetition."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import assert_identical, environment, policy_folder
from test_search import Recording

from epymarl_fairtest.campaign.run import run
from epymarl_fairtest.core.episodes import OPERATORS, Episodes, replay_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.engine.selection import real_engine
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import STRATEGIES, configure, strategy_of
from epymarl_fairtest.strategies.contract import Context
from epymarl_fairtest.strategies.gmt import network
from epymarl_fairtest.strategies.gmt.by_torch import ByTorch
from epymarl_fairtest.strategies.gmt.diffusion import Cases, Diffusion
from epymarl_fairtest.strategies.gmt.network import Network
from epymarl_fairtest.strategies.gmt.options import GmtOptions
from epymarl_fairtest.strategies.gmt.search import Visits, gmt, propose
from epymarl_fairtest.strategies.starts import roots
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.generic.rules import GenericTask
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.team.saved import saved_team

pytestmark = pytest.mark.slow  # an opponent changes rarely; `make test` has its contract (test_contracts.py)

JUDGE = Judge(INDICES["jfi"], 0.8)
SMALL = {"warmup": 30, "cycle": 12, "epochs": 4, "minibatch": 16, "retraining": 2, "memory": 20}


def diffusion(size: int = 2, seed: int = 0, **options: Any) -> Diffusion:
    return Diffusion(size, GmtOptions(**options), np.random.default_rng(seed))


def context_of(task: str = "spread", **options: Any) -> Context:
    given = configure({"method": "gmt", "budget": 100})
    return Context(task_for(environment(task)), given, 5, JUDGE, np.ones((3, 5), bool), options=GmtOptions(**options))


# --- the diffusion ------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [2, 25, 100])
def test_the_closed_form_of_the_forward_process_is_that_of_noising_step_by_step(steps: int) -> None:
    model = diffusion(diffusion_steps=steps)
    mean, variance = 1.0, 0.0
    for t, beta in enumerate(model.beta):
        assert 0 < beta < 1
        mean, variance = math.sqrt(1 - beta) * mean, (1 - beta) * variance + beta
        at, zero, one = np.array([t]), np.zeros((1, 2)), np.ones((1, 2))
        assert model.noised(one, at, zero) == pytest.approx(mean)
        assert model.noised(zero, at, one) == pytest.approx(math.sqrt(variance))
    assert mean < 0.05, "sampling starts from noise: hardly any signal may be left"


def test_noised_cases_have_the_mean_and_the_variance_of_the_chain() -> None:
    model, generator = diffusion(), np.random.default_rng(1)
    chain = clean = np.tile([0.8, -0.3], (20_000, 1))
    for beta in model.beta[:9]:
        chain = np.sqrt(1 - beta) * chain + np.sqrt(beta) * generator.standard_normal(chain.shape)
    jump = model.noised(clean, np.full(len(clean), 8), generator.standard_normal(clean.shape))
    assert jump.mean(axis=0) == pytest.approx(chain.mean(axis=0), abs=0.02)
    assert jump.var(axis=0) == pytest.approx(chain.var(axis=0), rel=0.05)
    assert not np.allclose(jump.mean(axis=0), clean[0], atol=0.05), "nothing was noised"


class Oracle(Diffusion):
    """Knows the noise in x_t exactly: the data are normal with this mean and deviation."""

    mean, deviation = np.array([0.4, -0.2]), 0.0

    def predict(self, x: Any, t: int) -> Any:
        kept = self.kept[t]
        share = np.sqrt(kept) * self.deviation**2 / (kept * self.deviation**2 + 1 - kept)
        clean = self.mean + share * (x - np.sqrt(kept) * self.mean)
        return (x - np.sqrt(kept) * clean) / np.sqrt(1 - kept)


def test_the_reverse_process_leads_back_to_the_only_case_there_is() -> None:
    assert Oracle(2, GmtOptions(), np.random.default_rng(0)).sample(20) == pytest.approx(np.tile([0.4, -0.2], (20, 1)))


def test_the_reverse_process_gives_the_distribution_that_the_noise_was_told_of() -> None:
    oracle = Oracle(2, GmtOptions(diffusion_steps=100), np.random.default_rng(0))
    oracle.deviation = 0.15
    cases = oracle.sample(4000)
    assert cases.mean(axis=0) == pytest.approx(oracle.mean, abs=0.02)
    assert cases.std(axis=0) == pytest.approx(0.15, rel=0.1)


def by_autograd(model: Diffusion) -> list[torch.Tensor]:
    """Copies of the weights and biases that torch's autograd follows."""
    return [torch.from_numpy(part.copy()).requires_grad_() for layer in model.network.weights.layers for part in layer]


def loss(model: Diffusion, parts: list[torch.Tensor], clean: Any, t: Any, noise: Any, weight: Any) -> torch.Tensor:
    """Mean over the cases of weight times the mean squared error of the predicted noise."""
    x, expected, weight = (
        torch.from_numpy(v.astype(np.float32)) for v in (model.noised(clean, t, noise), noise, weight)
    )
    for number in range(4):
        x = torch.nn.functional.linear(x, *parts[2 * number : 2 * number + 2])
        x = x + torch.from_numpy(model._time[t]) if number == 0 else x
        x = x if number == 3 else torch.relu(x)
    return ((x - expected).square().mean(dim=1) * weight).mean()


def loss_of(model: Diffusion, *cases: Any) -> float:
    return float(loss(model, by_autograd(model), *cases).detach())


def by_hand(model: Diffusion, x: Any, t: int) -> list[float]:
    """The network, neuron by neuron."""
    angles = [t * 10_000.0 ** (-i / 127) for i in range(128)]
    time = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
    values = [float(value) for value in x]
    for number, (rows, shift) in enumerate(model.network.weights.layers):
        sums = [sum(w * v for w, v in zip(row, values, strict=True)) + b for row, b in zip(rows, shift, strict=True)]
        if number == 0:
            sums = [one + other for one, other in zip(sums, time, strict=True)]
        values = sums if number == 3 else [max(one, 0.0) for one in sums]
    return values


def test_the_network_equals_a_computation_by_hand() -> None:
    model, x = diffusion(3), np.random.default_rng(2).standard_normal((2, 3))
    assert [weights.shape for weights, _ in model.network.weights.layers] == [
        (256, 3),
        (512, 256),
        (256, 512),
        (3, 256),
    ]
    for t in (0, 24):
        assert model.predict(x, t) == pytest.approx(np.array([by_hand(model, row, t) for row in x]), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    ("size", "count"), [(3, 64), (8, 64), (12, 64), (18, 64), (12, 2), (12, 16), (12, 32), (12, 128)]
)
def test_training_gives_the_bits_of_autograd_and_of_torchs_adamw(size: int, count: int) -> None:
    generator, rate = np.random.default_rng(2), 3e-3
    model = diffusion(size, learning_rate=rate)
    parts = by_autograd(model)
    optimiser = torch.optim.AdamW(parts, lr=rate)
    for _ in range(8):
        clean, noise = generator.uniform(-1, 1, (count, size)), generator.standard_normal((count, size))
        cases = clean, generator.integers(0, 25, count), noise, generator.uniform(1, 1.1, count)
        model.find_gradient(*cases)
        model.network.learn()
        optimiser.zero_grad()
        loss(model, parts, *cases).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        ours = [part for layer in model.network.weights.layers for part in layer]
        assert all(one.tobytes() == other.detach().numpy().tobytes() for one, other in zip(ours, parts, strict=True))


@pytest.mark.parametrize("count", [1, 3, 4, 16, 17, 32, 33, 50, 64, 65])
def test_however_many_cases_are_asked_about_torch_gives_the_same_bits(count: int) -> None:
    model, x = diffusion(12), np.random.default_rng(count).standard_normal((count, 12), np.float32)
    wanted = ByTorch(model.network.weights).answer(x, model._time[3])
    assert model.network.ask(x, model._time[3]).tobytes() == wanted.tobytes()


def test_what_is_asked_after_a_step_is_answered_with_its_weights() -> None:
    model, generator = diffusion(12), np.random.default_rng(1)
    x, cases = generator.standard_normal((20, 12), np.float32), ring(generator, 64)
    before = model.network.ask(x, model._time[3])
    model.train(Cases(np.tile(cases, 6), np.ones(64)), 1)
    after = model.network.ask(x, model._time[3])
    assert (before != after).all()
    assert after.tobytes() == ByTorch(model.network.weights).answer(x, model._time[3]).tobytes()


def test_where_the_processor_cannot_do_it_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "can_fuse", lambda: False)
    asked, sizes = (network.learning_as_torch, network.packed_as_torch), (12, 256, 512, 256, 12)
    for ask in asked:
        ask.cache_clear()
    try:
        assert [ask(sizes, 64) for ask in asked] == [None, None]
        model = diffusion(12)
        model.network.answer(np.zeros((64, 12), np.float32), model._time[np.zeros(64, int)])
        assert isinstance(model.network._answered, ByTorch)
    finally:
        for ask in asked:
            ask.cache_clear()


def test_a_case_pulls_the_network_as_strongly_as_it_weighs() -> None:
    """In the released code the guidance had no gradient."""
    model, generator = diffusion(), np.random.default_rng(3)
    clean, noise, t = generator.uniform(-1, 1, (2, 2)), generator.standard_normal((2, 2)), np.array([3, 9])

    def gradient(rows: list[int], weight: list[float]) -> np.ndarray:
        model.find_gradient(clean[rows], t[rows], noise[rows], np.array(weight))
        return model.network.weights.gradient.copy()

    both = (gradient([0], [1.0]) + 1.1 * gradient([1], [1.0])) / 2
    assert np.allclose(gradient([0, 1], [1.0, 1.1]), both, atol=1e-7)
    assert not np.allclose(gradient([0, 1], [1.0, 1.0]), both, atol=1e-7)


def ring(generator: np.random.Generator, count: int) -> np.ndarray:
    angle = generator.uniform(0, 2 * np.pi, count)
    return 0.7 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + generator.normal(0, 0.03, (count, 2))


def energy_distance(a: np.ndarray, b: np.ndarray) -> float:
    def mean_distance(one: np.ndarray, other: np.ndarray) -> float:
        return float(np.sqrt(((one[:, None] - other[None]) ** 2).sum(axis=-1)).mean())

    return 2 * mean_distance(a, b) - mean_distance(a, a) - mean_distance(b, b)


@pytest.mark.slow
def test_training_lowers_the_loss_and_samples_come_to_resemble_the_cases() -> None:
    generator = np.random.default_rng(4)
    cases, others = ring(generator, 300), ring(generator, 300)
    model = diffusion(learning_rate=2e-3)
    t, noise = generator.integers(0, 25, 300), generator.standard_normal((300, 2))
    before, untrained = loss_of(model, others, t, noise, np.ones(300)), model.sample(300)
    model.train(Cases(cases, np.ones(300)), 200)
    assert loss_of(model, others, t, noise, np.ones(300)) < 0.6 * before
    samples = model.sample(300)
    assert np.abs(samples).max() <= 1
    for worse in (untrained, np.clip(generator.standard_normal((300, 2)), -1, 1)):
        assert energy_distance(samples, others) < 0.7 * energy_distance(worse, others)
    off_the_ring = [np.abs(np.linalg.norm(points, axis=1) - 0.7).mean() for points in (samples, untrained)]
    assert off_the_ring[0] < 0.65 * off_the_ring[1]


@pytest.mark.slow
def test_weight_draws_the_samples_to_where_it_lies() -> None:
    cases, shares = ring(np.random.default_rng(5), 300), []
    for heavy in (1.0, 9.0):
        model = diffusion(learning_rate=2e-3)
        model.train(Cases(cases, np.where(cases[:, 0] > 0, heavy, 1.0)), 150)
        shares.append((model.sample(400)[:, 0] > 0).mean())
    assert shares[1] > shares[0] + 0.15


# --- novelty ------------------------------------------------------------------------------------------


def test_novelty_falls_with_every_visit_of_the_cell() -> None:
    visits, generator, count = Visits(context_of()), np.random.default_rng(6), Counter[int]()
    for size in (7, 1, 30):
        cells = generator.integers(0, 5, size) * 10**12
        expected = []
        for cell in cells.tolist():
            count[cell] += 1
            expected.append(1 / math.e ** (count[cell] - 1))
        assert visits.novelty(cells) == pytest.approx(expected)
    assert max(count.values()) > 5


def test_a_case_is_its_start_and_weighs_by_the_cell_it_ended_in() -> None:
    """Two episodes of different lengths that end in one cell, and one that only passes through it."""
    context = context_of(novelty_weight=0.1)
    states = np.zeros((3, 4, 18))
    here, there = np.full(18, 0.9), np.full(18, -0.9)
    states[:, 0] = np.random.default_rng(0).uniform(-0.5, 0.5, (3, 18))
    states[0, 1:4] = there, there, here
    states[1, 1] = here
    states[2, 1:3] = here, there
    length = np.array([3, 1, 2], np.int32)
    nothing: Any = np.zeros(3)
    episodes = Episodes(states, *[nothing] * 4, length, *[nothing] * 6)
    cases = Visits(context).cases(episodes)
    assert cases.weight == pytest.approx([1.1, 1 + 0.1 / math.e, 1.1])
    assert cases.starts.tobytes() == context.task.start_vectors(states[:, 0]).tobytes()


def test_only_the_latest_cases_are_remembered() -> None:
    cases = Cases(np.arange(10.0).reshape(5, 2), np.arange(5.0))
    assert cases.last(2).weight.tolist() == [3, 4]
    assert cases.last(2).starts.tolist() == [[6, 7], [8, 9]]
    assert [len(cases.last(count)) for count in (0, 5, 9)] == [0, 5, 5]
    assert cases.last(1).joined(cases.last(2)).weight.tolist() == [4, 3, 4]


# --- what is proposed ---------------------------------------------------------------------------------


class Scripted(Diffusion):
    """Yields good and bad starts by turns; how often was it asked, and for how many?"""

    def __init__(self, good: float) -> None:
        self.good, self.asked, self._generator = good, [], np.random.default_rng(8)  # type: ignore[var-annotated]

    def sample(self, count: int) -> Any:
        self.asked.append(count)
        vectors = self._generator.uniform(-1, 1, (count, 12))
        vectors[int(count * self.good) :, 5] = 1.5
        return vectors


def test_invalid_starts_are_skipped_counted_and_drawn_again() -> None:
    context, model = context_of(cycle=16, redraws=20), Scripted(good=0.5)
    tests = propose(model, context, np.random.default_rng(0))
    assert model.asked == [16, 8, 4, 2, *[1] * 16]
    assert context.notes == {"invalid_starts": 8 + 4 + 2 + 1 + 16, "random_starts": 1}
    made = [OPERATORS[code] for code in tests.operator]
    assert made == ["state"] * 15 + ["seed"]
    assert context.task.starts_from(context.task.start_vectors(tests.start_state[:15]))[1].all()
    assert np.isnan(tests.start_state[15]).all()
    assert (tests.start_step == 0).all()
    assert tests.prefix is None


def test_a_model_that_yields_nothing_is_replaced_by_random_starts_after_a_bounded_number_of_draws() -> None:
    context, model = context_of(cycle=6, redraws=3), Scripted(good=0.0)
    tests = propose(model, context, np.random.default_rng(0))
    assert model.asked == [6, 6, 6]
    assert tests.from_seed.all()
    assert len(tests) == 6
    assert context.notes == {"invalid_starts": 18, "random_starts": 6}


def test_a_start_is_a_root_of_its_own_beyond_all_seeds() -> None:
    states = np.random.default_rng(1).uniform(-1, 1, (500, 18))
    states[7] = states[3]
    found = roots(states)
    assert len(np.unique(found)) == 499
    assert found[7] == found[3] != roots(-states)[3]
    assert found.min() >= 2**31
    assert found.dtype == np.int64
    assert len(roots(states[:0])) == 0


# --- whole runs ---------------------------------------------------------------------------------------


@cache
def team(task: str) -> Team:
    with tempfile.TemporaryDirectory() as folder:
        return saved_team(policy_folder(Path(folder) / "team", task, "gru", time_limit=6), "env")


def chosen(budget: int = 66, **options: Any) -> Settings:
    given = {"method": "gmt", "budget": budget, "theta": 0.97, "engine": "twin", "options": {**SMALL, **options}}
    return configure(given)


def search(task: str, given: Settings, path: Path, seed: int = 5) -> tuple[list[Episodes], dict[str, Any]]:
    strategy_of(given).check_settings(given, team(task).task)
    folder = Recording(path)
    summary = run(team(task), given, folder, seed=seed, command="test", warn=print)
    assert {purpose for purpose, _ in folder.batches} == {"execution"}
    return [episodes for _, episodes in folder.batches], summary


def assert_same(a: list[Episodes], b: list[Episodes]) -> None:
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert_identical(one, other)


def test_a_warm_up_of_a_fifth_of_the_budget_and_then_cycles_use_the_budget_up(tmp_path: Path) -> None:
    batches, summary = search("spread", chosen(), tmp_path / "run")
    assert [len(batch) for batch in batches] == [13, 12, 12, 12, 12, 5]
    assert summary["charged_strict"] == summary["charged_paper"] == summary["executed_episodes"] == 66
    assert (batches[0].operator == OPERATORS.index("seed")).all()
    for batch in batches[1:]:
        assert (batch.operator == OPERATORS.index("state")).all()
    assert summary["notes"]["random_starts"] == 0
    batches, _ = search("spread", chosen(160), tmp_path / "long")
    assert len(batches[0]) == SMALL["warmup"]


@pytest.mark.parametrize("budget", [1, 2, 6])
def test_the_smallest_budgets_are_spent(budget: int, tmp_path: Path) -> None:
    batches, _ = search("spread", chosen(budget, cycle=3), tmp_path / "run")
    assert sum(map(len, batches)) == budget


@pytest.mark.parametrize("task", ["spread", "foraging", pytest.param("tag", marks=pytest.mark.slow)])
def test_the_same_seed_gives_the_same_episodes_and_proposed_failures_replay_bit_for_bit(
    task: str, tmp_path: Path
) -> None:
    given = chosen(40, epochs=8)
    batches, summary = search(task, given, tmp_path / "one")
    again, _ = search(task, given, tmp_path / "two")
    assert_same(batches, again)
    everything = Episodes.concatenate(batches)
    proposed = everything.take(everything.operator == OPERATORS.index("state"))
    assert len(proposed) > 10
    assert team(task).task.starts_from(team(task).task.start_vectors(proposed.states[:, 0]))[1].all()
    real = real_engine(team(task), given)
    real.keeps_obs = False  # as the search had it
    assert_identical(real.execute(replay_tests(proposed)), replace(proposed, id=0 * proposed.id - 1))
    if task != "foraging":  # where a random team seldom loads anything
        assert 3 < summary["confirmed_failures"] == min(summary["failures"], 10)


@pytest.mark.slow  # as every strategy does: test_contracts
def test_another_seed_gives_other_starts(tmp_path: Path) -> None:
    one, two = (search("spread", chosen(), tmp_path / str(seed), seed=seed)[0] for seed in (5, 6))
    assert not set(one[1].root_seed.tolist()) & set(two[1].root_seed.tolist())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that was never interrupted."""
    path = tmp_path_factory.mktemp("whole") / "run"
    search("tag", chosen(), path)
    return path


@pytest.mark.slow  # as every strategy does: test_contracts
@pytest.mark.parametrize("batch", [0, 2, 5])
def test_an_interrupted_run_ends_as_if_nothing_had_happened(batch: int, whole: Path, tmp_path: Path) -> None:
    rest: dict[str, Any] = {"seed": 5, "command": "test", "warn": print}
    with pytest.raises(KeyboardInterrupt):
        run(team("tag"), chosen(), Recording(tmp_path / "run", batch), **rest)
    summary = run(team("tag"), chosen(), RunFolder.resume(tmp_path / "run"), **rest)
    assert summary["failures"] > 3
    for name in ("failures.csv", "journal.jsonl"):
        assert (whole / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_the_guidance_reaches_the_starts(tmp_path: Path) -> None:
    """The first generated cycle knows the warm-up's novelty already."""
    guided, plain = (
        search("spread", chosen(novelty_weight=weight), tmp_path / str(weight))[0] for weight in (0.1, 0.0)
    )
    assert_identical(guided[0], plain[0])
    assert (guided[1].states[:, 0] != plain[1].states[:, 0]).any()


# --- nothing else is touched --------------------------------------------------------------------------


@pytest.mark.slow
def test_global_random_states_and_the_number_of_threads_stay_as_they_were(tmp_path: Path) -> None:
    random.seed(1), torch.manual_seed(1), np.random.seed(1)  # noqa: NPY002
    played = team("spread")
    torch.set_num_threads(2)
    try:
        before = random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state())  # noqa: NPY002
        model = diffusion()
        model.train(Cases(np.zeros((5, 2)), np.ones(5)), 3)
        model.sample(4)
        context = context_of(**SMALL)
        strategy = gmt(context)
        engine = real_engine(played, chosen())
        judged = JUDGE(engine.execute(next(strategy).tests))  # type: ignore[arg-type]
        for _ in range(2):
            judged = JUDGE(engine.execute(strategy.send(judged).tests))  # type: ignore[arg-type]
        assert before == (random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state()))  # noqa: NPY002
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_the_model_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    cases, samples, used = Cases(ring(np.random.default_rng(9), 400), np.ones(400)), [], set()

    def watched(told: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        def asked(*given: Any) -> np.ndarray:
            used.add(torch.get_num_threads())
            return told(*given)

        return asked

    for name in ("answer", "ask"):
        monkeypatch.setattr(Network, name, watched(getattr(Network, name)))
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            model = diffusion(minibatch=256)
            model.train(cases, 15)
            samples.append(model.sample(300).tobytes())
    finally:
        torch.set_num_threads(1)
    assert used == {1}
    assert samples[0] == samples[1]


def test_importing_gmt_does_not_import_torch() -> None:
    program = "import sys, epymarl_fairtest.strategies.gmt; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=False).returncode == 0


# --- bad input ----------------------------------------------------------------------------------------


def test_a_task_that_proposes_no_starts_is_refused() -> None:
    with pytest.raises(FairTestError, match=r"method='gmt' needs initial states that can be proposed as vectors"):
        STRATEGIES["gmt"].check_settings(chosen(), GenericTask(environment("spread")))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("diffusion_steps", 1, "a whole number from 2 to 10,000"),
        ("cycle", 0, "a whole number from 1 to 100,000"),
        ("novelty_weight", -0.1, r"a number in \[0, 1e\+06\]"),
        ("learning_rate", 0, r"a number in \(0, 1\]"),
        ("warm_up", 10, "Did you mean warmup"),
    ],
)
def test_wrong_options_are_refused(option: str, value: Any, message: str) -> None:
    with pytest.raises(FairTestError, match=f"options.{option}.*{message}"):
        chosen(**{option: value})
