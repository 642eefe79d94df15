"""`epymarl_fairtest:mpe-tag-v0`: simple_tag that pays the distance to a prey that somebody else moves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.mpe.environment import MpeEnv
from epymarl_fairtest.tasks.mpe.rules import MpeTask
from epymarl_fairtest.tasks.tag.rules import TagTask

Act = Callable[[NDArray[np.float32]], int]
PREY_SEES = 14  # numbers, with three predators and two obstacles


class TagEnv(MpeEnv):
    """`prey` is `fairtest`, `epymarl` or `still`, the rest is simple_tag's."""

    task_class: ClassVar[type[MpeTask]] = TagTask

    def __init__(self, allocation: str = "prey_distance", prey: str = "fairtest", **settings: Any) -> None:
        if prey not in PREY:
            raise FairTestError(f"prey={prey!r} is unknown; allowed: {', '.join(PREY)}.")
        super().__init__(allocation, **settings)
        sees = self._env.observation_spaces[self._env.possible_agents[-1]].shape[0]
        if prey != "still" and sees != PREY_SEES:
            raise FairTestError(
                f"prey={prey!r} was trained to see {PREY_SEES} numbers (three predators, two obstacles, one "
                f"prey) but would see {sees} here; leave those settings alone or use prey='still'."
            )
        self.prey_name = prey
        self._prey: Act = PREY[prey]()

    def everyones_actions(self, actions: Sequence[int]) -> list[int]:
        """The prey acts on what it saw before the step."""
        return [*map(int, actions), *(self._prey(seen) for seen in self._seen[self.n_agents :])]


def _fairtest_prey() -> Act:
    from epymarl_fairtest.tasks.tag.prey import Prey

    act: Act = Prey.load().act
    return act


def _epymarl_prey() -> Act:
    """EPyMARL's pretrained prey: normalised input, two hidden layers of 128, the best of five actions."""
    import torch

    from epymarl_fairtest.core.checkout import known_checkout

    checkout = known_checkout()
    if checkout is None:
        raise FairTestError(
            "prey='epymarl' needs the weights of an EPyMARL checkout and none is known: run "
            "`fairtest install CHECKOUT` first, or use prey='fairtest'."
        )
    path = checkout / "src" / "envs" / "pretrained" / "prey_params.pt"
    layers = {"in_fn": torch.nn.BatchNorm1d(PREY_SEES), "fc1": torch.nn.Linear(PREY_SEES, 128)}
    layers |= {"fc2": torch.nn.Linear(128, 128), "fc3": torch.nn.Linear(128, 5)}
    network = torch.nn.ModuleDict(layers).eval()
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        network.load_state_dict(saved["agent_params"][-1]["policy"])
    except Exception as error:  # a missing, torn or foreign file, in whatever words torch has for it
        raise FairTestError(
            f"EPyMARL's prey cannot be read from {path} ({type(error).__name__}: {error}). "
            "Restore the file in the checkout, or use prey='fairtest'."
        ) from error

    @torch.inference_mode()
    def act(observation: NDArray[np.float32]) -> int:
        hidden = network["in_fn"](torch.from_numpy(observation).unsqueeze(0))
        hidden = torch.relu(network["fc1"](hidden))
        hidden = torch.relu(network["fc2"](hidden))
        return int(network["fc3"](hidden).argmax())

    return act


def _still_prey() -> Act:
    return lambda observation: 0


PREY: Mapping[str, Callable[[], Act]] = {
    "fairtest": _fairtest_prey,
    "epymarl": _epymarl_prey,
    "still": _still_prey,
}
