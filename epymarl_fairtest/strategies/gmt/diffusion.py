"""Denoising diffusion of start vectors (Ho et al. 2020), trained on executed starts of which some count for more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.strategies.gmt.options import GmtOptions

Array = NDArray[np.float64]
WIDTHS = 256, 512, 256  # of the hidden layers


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


class Diffusion:
    """Of vectors in [-1, 1]: a network tells the noise in x_t from x_t and t."""

    def __init__(self, size: int, options: GmtOptions, generator: np.random.Generator) -> None:
        from epymarl_fairtest.strategies.gmt.network import Network

        self.steps, self._minibatch, self._generator = options.diffusion_steps, options.minibatch, generator
        kept = cosine_schedule(self.steps)
        before = np.concatenate([[1.0], kept[:-1]])
        self.kept, self.beta = kept, 1 - kept / before
        # The mean of x_{t-1} given x_0 and x_t is `clean` and `noisy` times them; the last step adds no noise.
        clean, noisy = np.sqrt(before) * self.beta / (1 - kept), np.sqrt(1 - self.beta) * (1 - before) / (1 - kept)
        new = np.where(np.arange(self.steps), np.sqrt(self.beta), 0)
        self._shares = np.stack([np.sqrt(1 - kept), np.sqrt(kept), clean, noisy, new], axis=1).tolist()
        self._time = sinusoids(self.steps, WIDTHS[0])
        self.network = Network((size, *WIDTHS, size), generator, options.learning_rate)

    def train(self, cases: Cases, minibatches: int) -> None:
        from epymarl_fairtest.team.by_torch import one_thread

        with one_thread():
            for _ in range(minibatches):
                rows = self._generator.integers(0, len(cases), self._minibatch)
                t = self._generator.integers(0, self.steps, self._minibatch)
                clean = cases.starts[rows]
                self.find_gradient(clean, t, self._generator.standard_normal(clean.shape), cases.weight[rows])
                self.network.learn()

    def find_gradient(self, clean: Array, t: NDArray[np.int64], noise: Array, weight: Array) -> None:
        """Into the network's `gradient`: that of the mean over the cases of weight times the mean squared error of the
        predicted noise."""
        answer = self.network.answer(single(self.noised(clean, t, noise)), self._time[t])
        cases, size = answer.shape
        share = single(weight) / np.float32(cases) / np.float32(size)
        self.network.find_gradient((answer - single(noise)) * np.float32(2) * share[:, None])

    def noised(self, clean: Array, t: NDArray[np.int64], noise: Array) -> Array:
        """x_t of the forward process, where t=0 is one step of it."""
        kept = self.kept[t][:, None]
        return np.sqrt(kept) * clean + np.sqrt(1 - kept) * noise

    def sample(self, count: int) -> Array:
        """The reverse process from noise; x_0 is kept within [-1, 1] on the way."""
        from epymarl_fairtest.strategies.gmt.reverse import step_back
        from epymarl_fairtest.team.by_torch import one_thread

        drawn = self._generator.standard_normal((self.steps, count, self.network.weights.sizes[0]))
        x: Array = drawn[0].copy()
        with one_thread():
            for t in range(self.steps - 1, -1, -1):
                step_back(x, self.predict(x, t), drawn[-t], *self._shares[t])
        return x

    def predict(self, x: Array, t: int) -> NDArray[np.float32]:
        """The noise in x_t, where t is the same for all rows."""
        return self.network.ask(single(x), self._time[t])


def cosine_schedule(steps: int) -> Array:
    """The share of the signal's variance that is left after each step, nearly none at last (Nichol & Dhariwal 2021)."""
    angle = np.cos((np.arange(steps + 1) / steps + 0.008) / 1.008 * np.pi / 2) ** 2
    beta = np.minimum(1 - angle[1:] / angle[:-1], 0.999)
    return np.cumprod(1 - beta)


def sinusoids(steps: int, width: int) -> NDArray[np.float32]:
    """Sine and cosine of each step number at `width` / 2 frequencies, from 1 down to 1 / 10,000."""
    angle = np.arange(steps)[:, None] * 10_000.0 ** -np.linspace(0, 1, width // 2)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)


def single(values: Array) -> NDArray[np.float32]:
    return values.astype(np.float32)
