"""MDPFuzz's freshness: how probable a sequence of states is, given the sequences before it.

Two Gaussian mixtures, of states and of pairs of consecutive states, that learn from every fresh sequence. Knows states
and nothing of verdicts. One thread, so that the same sequences give the same bits.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes

Array = NDArray[np.float64]

NARROWEST = 1e-3  # variance of a component along any axis, at least
MOST_FITTED = 5000  # states, and pairs, that the mixtures begin with


class Freshness:
    """Begins with what the initial executions met.

    A sequence is fresh if its density is below `threshold` (tau) times the median of theirs: what a density is worth
    depends on how many numbers a state has, and in which units.
    """

    def __init__(
        self, seen: Episodes, components: int, threshold: float, rate: float, generator: np.random.Generator
    ) -> None:
        from threadpoolctl import ThreadpoolController

        sequences = sequences_of(seen)
        self._threads, self._rate = ThreadpoolController(), rate
        with self._threads.limit(limits=1):
            self._states = Mixture(np.concatenate(sequences), components, generator)
            self._pairs = Mixture(np.concatenate([pairs_of(states) for states in sequences]), components, generator)
            usual = np.median([log_density(*self._parts(states)) for states in sequences])
        self._fresh_below = usual + (np.log(threshold) if threshold else -np.inf)

    def of(self, episodes: Episodes) -> NDArray[np.bool_]:
        """Which episodes are fresh (B,). One by one: each fresh one is known to those after it."""
        with self._threads.limit(limits=1):
            return np.array([self._is_fresh(states) for states in sequences_of(episodes)], bool)

    def _is_fresh(self, states: Array) -> bool:
        of_states, of_pairs = self._parts(states)
        fresh = bool(log_density(of_states, of_pairs) < self._fresh_below)
        if fresh:
            self._states.learn(states, of_states, self._rate)
            self._pairs.learn(pairs_of(states), of_pairs, self._rate)
        return fresh

    def _parts(self, states: Array) -> tuple[Array, Array]:
        return self._states.parts(states), self._pairs.parts(pairs_of(states))


def sequences_of(episodes: Episodes) -> list[Array]:
    """The states of each episode, the first and the last included (length + 1, S)."""
    return [states[: length + 1] for states, length in zip(episodes.states, episodes.length, strict=True)]


def pairs_of(states: Array) -> Array:
    """Every state beside the next one (length, 2 S)."""
    return np.concatenate([states[:-1], states[1:]], axis=1)


def log_density(of_states: Array, of_pairs: Array) -> float:
    """Of a sequence: p(s_0) times, for each step, p(s_t, s_t+1) / p(s_t), or 1 where that is more."""
    single, both = total(of_states), total(of_pairs)
    return float(single[0] + np.minimum(both - single[:-1], 0.0).sum())


def total(parts: Array) -> Array:
    """The logarithm of the components' sum (n,)."""
    summed: Array = np.logaddexp.reduce(parts, axis=1)
    return summed


class Mixture:
    """Gaussians with full covariances, kept as sums that an online EM step can move (Cappé and Moulines 2009)."""

    def __init__(self, rows: Array, components: int, generator: np.random.Generator) -> None:
        from sklearn.mixture import GaussianMixture

        if len(rows) > MOST_FITTED:
            rows = rows[np.sort(generator.choice(len(rows), MOST_FITTED, replace=False))]
        if len(rows) == 1:
            rows = np.repeat(rows, 2, axis=0)  # what scikit-learn needs at least
        model = GaussianMixture(
            min(components, len(rows)),
            reg_covar=NARROWEST,
            max_iter=20,
            init_params="k-means++",
            random_state=int(generator.integers(2**31)),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it need not converge: it goes on learning
            model.fit(rows)
        self._weight = model.weights_
        self._sum = model.weights_[:, None] * model.means_
        squares = model.covariances_ + model.means_[:, :, None] * model.means_[:, None, :]
        self._squares = model.weights_[:, None, None] * squares
        self._refresh()

    def parts(self, rows: Array) -> Array:
        """The logarithm of each component's share of the density at each row (n, K)."""
        apart = (rows[None] - self._mean[:, None]) @ self._axes / np.sqrt(self._variance)[:, None]
        exponent = -0.5 * (apart**2).sum(axis=2).T
        scale = np.log(self._weight) - 0.5 * np.log(2 * np.pi * self._variance).sum(axis=1)
        parts: Array = scale + exponent
        return parts

    def learn(self, rows: Array, parts: Array, rate: float) -> None:
        """Move towards these rows by the share `rate`; `parts` are theirs."""
        taken = np.exp(parts - total(parts)[:, None]) / len(rows)  # (n, K): whose they are
        self._weight = (1 - rate) * self._weight + rate * taken.sum(axis=0)
        self._sum = (1 - rate) * self._sum + rate * taken.T @ rows
        weighted = (taken.T[:, :, None] * rows).transpose(0, 2, 1)  # (K, D, n)
        self._squares = (1 - rate) * self._squares + rate * weighted @ rows
        self._refresh()

    def _refresh(self) -> None:
        """Means and principal axes from the sums."""
        self._mean = self._sum / self._weight[:, None]
        covariance = self._squares / self._weight[:, None, None] - self._mean[:, :, None] * self._mean[:, None, :]
        variance, self._axes = np.linalg.eigh(covariance)
        self._variance = np.maximum(variance, NARROWEST)
