"""Matrix games: the same table of payoffs at every step; works for matrixgames' games and for our own.

State: the action that each agent played last, -1 before the first step. Agents stand in rows of their own, at the
number of that action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.contract import Array, Task
from epymarl_fairtest.tasks.layers import set_clocks, wrappers
from epymarl_fairtest.tasks.matrix.environment import MatrixGame
from epymarl_fairtest.tasks.mpe.situations import steps_where
from epymarl_fairtest.tasks.scene import Field, bodies


def _is_game(inner: Any) -> bool:
    needed = ("payoff", "num_actions", "last_actions", "t", "_make_obs")
    named = any(cls.__name__ == "MatrixGame" for cls in type(inner).__mro__)
    return named and all(hasattr(inner, name) for name in needed)


class MatrixTask(Task):
    """The payoffs are the allocation. Where the game pays all alike nobody can be treated unfairly."""

    name: ClassVar[str] = "matrix"
    order: ClassVar[int] = 8
    theta: ClassVar[float] = 0.80
    restorable: bool = True
    distinct_distance: float = 0.25
    environments: ClassVar[Mapping[str, str]] = {"matrix-v0": "epymarl_fairtest.tasks.matrix.environment:MatrixGame"}
    legend: ClassVar[str] = "Each agent stands in a row of its own, in the column of the action that it played."

    @classmethod
    def recognises(cls, env: Any) -> bool:
        return _is_game(wrappers(env)[-1])

    def __init__(self, env: Any) -> None:
        inner = self._game(env)
        self._counts = np.array(inner.num_actions, np.int64)
        self.n_agents = self.state_size = len(self._counts)
        self.low, self.high = -1.5, max(int(self._counts.max()), self.n_agents) - 0.5

    @staticmethod
    def _game(env: Any) -> Any:
        inner = wrappers(env)[-1]
        if not _is_game(inner):
            raise FairTestError(f"{env} holds no matrix game; task matrix needs one.")
        return inner

    def reset(self, env: Any, seed: int) -> Any:
        self._game(env).last_actions = [-1] * self.n_agents  # matrixgames keeps those of the episode before
        return env.reset(seed=seed)

    def read(self, env: Any) -> Array:
        played = self._game(env).last_actions
        return np.array([-1 if np.ndim(one) == 0 else int(np.argmax(one)) for one in played], np.float64)

    def write(self, env: Any, state: Array, step: int) -> None:
        chain = wrappers(env)
        set_clocks(chain, step)
        inner, played = self._game(env), state.astype(int).tolist()
        begun = [np.eye(count)[one].tolist() for count, one in zip(self._counts, played, strict=True)]
        inner.last_actions = begun if min(played) >= 0 else [-1] * self.n_agents
        inner.t = step

    def observe(self, env: Any) -> list[NDArray[np.float32]]:
        return [np.asarray(seen, np.float32).ravel() for seen in self._game(env)._make_obs()]

    def positions(self, states: Array) -> Array:
        rows = np.broadcast_to(np.arange(self.n_agents, dtype=np.float64), states.shape)
        return np.stack([states, rows], axis=-1)

    def perturb(self, states: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """As if one agent had played something else; before the first step there is nothing to change."""
        new, rows = states.copy(), np.arange(len(states))
        who = rng.integers(0, self.n_agents, len(states))
        new[rows, who] = rng.integers(0, self._counts[who])
        begun = (states >= 0).all(axis=1)
        new[~begun] = states[~begun]
        return new, (new != states).any(axis=1)

    def course(self, states: Array, length: NDArray[np.int32]) -> dict[str, Array]:
        same = (states == states[..., :1]).all(axis=-1)
        changed = np.zeros(states.shape[:2], bool)
        changed[:, 2:] = (states[:, 2:] != states[:, 1:-1]).any(axis=-1)
        return {
            "steps in which all play the same action": steps_where(same, length),
            "steps in which the joint action is another than before": steps_where(changed, length),
        }

    def action_name(self, action: int) -> str:
        return f"action {action + 1}"

    def field(self, states: Array) -> Field:
        window = np.array([self._counts.max() - 0.5, self.n_agents - 0.5])
        return Field("grid", bodies("agent", self.positions(states), 0.4), np.array([-1.5, -0.5]), window)

    @classmethod
    def rebuilt(cls, agents: int, key: str, env_args: Mapping[str, Any]) -> Task | None:
        if not key.endswith("epymarl_fairtest:matrix-v0"):
            return None
        payoff: Sequence[Any] | None = env_args.get("payoff")
        return cls(MatrixGame() if payoff is None else MatrixGame(payoff))
