"""GMT (Li et al. 2023): a diffusion model proposes starts, drawn towards rare terminal states.

It knows starts as the task's vectors, and how often the coverage cells of terminal states were reached.

The released code (lizhuo-1994/mdp_testing) is not followed where it does not do what the method says:
- its guidance term is a constant for the network, so its gradient is zero: here novelty weighs the loss of each case;
- novelty enters as a quantity to be minimised: here a novel case counts for more;
- its forward process scales by the cumulative product where its square root belongs, and 25 steps of its noise
  schedule keep four fifths of the signal, while sampling starts from pure noise: here the schedule ends in noise;
- it predicts the posterior mean, one case at a time: here a batch, and the noise (epsilon), as is usual;
- it alternates between 50 random and 50 generated cases and trains on the last of both: here the random ones all come
  first, as a warm-up, and stay beside the latest generated ones in what the model is trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests, random_tests
from epymarl_fairtest.core.ledger import EXECUTION
from epymarl_fairtest.settings import AT_ONCE, between, setting, whole
from epymarl_fairtest.strategies.contract import Context, Request, Search, Strategy
from epymarl_fairtest.strategies.starts import starting_from

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]
WARMUP_SHARE = 5  # the warm-up takes at most one part in five of the budget
WIDTHS = 256, 512, 256  # of the hidden layers


@dataclass(frozen=True)
class GmtOptions:
    """GMT's own settings."""

    warmup: int = setting(
        whole(1, AT_ONCE),
        "random executions whose initial states train the model first; at most a fifth of the budget",
        1000,
    )
    cycle: int = setting(whole(1, AT_ONCE), "generated initial states per cycle", 50)
    diffusion_steps: int = setting(whole(2, 10_000), "steps between an initial state and noise (T)", 25)
    learning_rate: float = setting(between(0, 1, open_low=True), "of AdamW", 3e-4)
    minibatch: int = setting(whole(1, AT_ONCE), "initial states per step of AdamW", 64)
    epochs: int = setting(whole(1), "passes over the warm-up's initial states before the first cycle", 100)
    retraining: int = setting(whole(0), "steps of AdamW after each cycle", 10)
    memory: int = setting(
        whole(1), "latest generated initial states that retraining draws from, beside the warm-up's", 1000
    )
    novelty_weight: float = setting(
        between(0, 1e6), "the loss of a case counts 1 + novelty_weight * novelty; 0 switches the guidance off", 0.1
    )
    redraws: int = setting(whole(1), "draws from the model per cycle before random starts fill the rest", 20)


def gmt(context: Context) -> Search:
    """Train on normal starts; then generate, execute, see what was new, retrain."""
    options, task = context.options, context.task
    generator, visits = context.generator("tests"), Visits(context)
    size = max(1, min(options.warmup, context.budget // WARMUP_SHARE))
    normal = visits.cases((yield Request(random_tests(size, task.state_size, generator), EXECUTION)).episodes)
    model = Diffusion(normal.starts.shape[1], options, context.generator("diffusion"))
    model.train(normal, options.epochs * -(-len(normal) // options.minibatch))
    latest = normal.last(0)
    while True:
        executed = yield Request(propose(model, context, generator), EXECUTION)
        latest = latest.joined(visits.cases(executed.episodes)).last(options.memory)
        model.train(normal.joined(latest), options.retraining)


@dataclass(frozen=True)
class Cases:
    """Executed starts as vectors (B, V), and what each counts in the loss (B,)."""

    starts: Array
    weight: Array

    def __len__(self) -> int:
        return len(self.weight)

    def joined(self, later: Cases) -> Cases:
        return Cases(np.concatenate([self.starts, later.starts]), np.concatenate([self.weight, later.weight]))

    def last(self, count: int) -> Cases:
        first = max(len(self) - count, 0)
        return Cases(self.starts[first:], self.weight[first:])


class Visits:
    """How often each cell of the coverage grid held a terminal state."""

    def __init__(self, context: Context) -> None:
        self._task, self._bins = context.task, context.settings.coverage_bins
        self._novelty_weight = context.options.novelty_weight
        self._cells = np.empty(0, np.int64)  # one per episode so far

    def cases(self, episodes: Episodes) -> Cases:
        terminal = episodes.states[np.arange(len(episodes)), episodes.length]
        weight = 1 + self._novelty_weight * self.novelty(self._task.cells(terminal, self._bins))
        return Cases(self._task.start_vectors(episodes.states[:, 0]), weight)

    def novelty(self, cells: NDArray[np.int64]) -> Array:
        """exp(-(visits - 1)) of each cell in turn, this visit included."""
        self._cells = np.concatenate([self._cells, cells])
        order = np.argsort(self._cells, kind="stable")
        ranked = self._cells[order]
        visits = np.empty_like(order)
        visits[order] = 1 + np.arange(len(order)) - np.searchsorted(ranked, ranked)
        novelty: Array = np.exp(1.0 - visits[len(order) - len(cells) :])
        return novelty


def propose(model: Diffusion, context: Context, generator: np.random.Generator) -> Tests:
    """A cycle of tests: valid starts from the model, and random ones for those it does not yield."""
    task, missing, states = context.task, context.options.cycle, []
    for _ in range(context.options.redraws):
        drawn, valid = task.starts_from(model.sample(missing))
        states.append(drawn[valid])
        context.count("invalid_starts", int((~valid).sum()))
        missing -= int(valid.sum())
        if not missing:
            break
    context.count("random_starts", missing)
    tests = starting_from(np.concatenate(states), generator)
    return Tests.concatenate([tests, random_tests(missing, task.state_size, generator)])


class Diffusion:
    """Denoising diffusion (Ho et al. 2020) of vectors in [-1, 1]: a network tells the noise in x_t from x_t and t."""

    def __init__(self, size: int, options: GmtOptions, generator: np.random.Generator) -> None:
        import torch

        self.steps, self._minibatch, self._generator = options.diffusion_steps, options.minibatch, generator
        kept = cosine_schedule(self.steps)
        before = np.concatenate([[1.0], kept[:-1]])
        self.kept, self.beta = kept, 1 - kept / before
        # The mean of x_{t-1} given x_0 and x_t is these times them.
        self._clean = np.sqrt(before) * self.beta / (1 - kept)
        self._noisy = np.sqrt(1 - self.beta) * (1 - before) / (1 - kept)
        self._time = torch.from_numpy(sinusoids(self.steps, WIDTHS[0]))
        self._layers: list[tuple[Tensor, Tensor]] = []
        for inputs, outputs in zip((size, *WIDTHS), (*WIDTHS, size), strict=True):
            values = generator.uniform(-1, 1, (outputs, inputs + 1)) / np.sqrt(inputs)
            layer = torch.from_numpy(values.astype(np.float32))
            self._layers.append((layer[:, :-1].clone().requires_grad_(), layer[:, -1].clone().requires_grad_()))
        parameters = [parameter for layer in self._layers for parameter in layer]
        self._optimiser = torch.optim.AdamW(parameters, lr=options.learning_rate)

    def train(self, cases: Cases, minibatches: int) -> None:
        from epymarl_fairtest.team.by_torch import one_thread

        with one_thread():
            for _ in range(minibatches):
                rows = self._generator.integers(0, len(cases), self._minibatch)
                t = self._generator.integers(0, self.steps, self._minibatch)
                clean = cases.starts[rows]
                loss = self.loss(clean, t, self._generator.standard_normal(clean.shape), cases.weight[rows])
                self._optimiser.zero_grad()
                loss.backward()
                self._optimiser.step()

    def loss(self, clean: Array, t: NDArray[np.int64], noise: Array, weight: Array) -> Tensor:
        """Mean over the cases of weight times the mean squared error of the predicted noise."""
        wrong = self._network(tensor(self.noised(clean, t, noise)), t) - tensor(noise)
        return (wrong.square().mean(dim=1) * tensor(weight)).mean()

    def noised(self, clean: Array, t: NDArray[np.int64], noise: Array) -> Array:
        """x_t of the forward process, where t=0 is one step of it."""
        kept = self.kept[t][:, None]
        return np.sqrt(kept) * clean + np.sqrt(1 - kept) * noise

    def sample(self, count: int) -> Array:
        """The reverse process from noise; x_0 is kept within [-1, 1] on the way."""
        x = self._generator.standard_normal((count, self._layers[0][0].shape[1]))
        for t in range(self.steps - 1, -1, -1):
            noise = self.predict(x, np.full(count, t))
            clean = np.clip((x - np.sqrt(1 - self.kept[t]) * noise) / np.sqrt(self.kept[t]), -1, 1)
            x = self._clean[t] * clean + self._noisy[t] * x
            if t:
                x += np.sqrt(self.beta[t]) * self._generator.standard_normal(x.shape)
        return x

    def predict(self, x: Array, t: NDArray[np.int64]) -> Array:
        import torch

        from epymarl_fairtest.team.by_torch import one_thread

        with one_thread(), torch.no_grad():
            return self._network(tensor(x), t).numpy().astype(np.float64)

    def _network(self, x: Tensor, t: NDArray[np.int64]) -> Tensor:
        from torch.nn.functional import linear, relu

        first, *hidden, last = self._layers
        x = relu(linear(x, *first) + self._time[t])
        for layer in hidden:
            x = relu(linear(x, *layer))
        return linear(x, *last)


def cosine_schedule(steps: int) -> Array:
    """The share of the signal's variance that is left after each step, nearly none at last (Nichol & Dhariwal 2021)."""
    angle = np.cos((np.arange(steps + 1) / steps + 0.008) / 1.008 * np.pi / 2) ** 2
    beta = np.minimum(1 - angle[1:] / angle[:-1], 0.999)
    return np.cumprod(1 - beta)


def sinusoids(steps: int, width: int) -> NDArray[np.float32]:
    """Sine and cosine of each step number at `width` / 2 frequencies, from 1 down to 1 / 10,000."""
    angle = np.arange(steps)[:, None] * 10_000.0 ** -np.linspace(0, 1, width // 2)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)


def tensor(values: Array) -> Tensor:
    import torch

    return torch.from_numpy(values.astype(np.float32))


STRATEGY = Strategy(
    "gmt",
    "GMT",
    gmt,
    GmtOptions,
    needs=("proposable",),
    observes=False,
    order=2,
    doc="a diffusion model that proposes initial states",
)
