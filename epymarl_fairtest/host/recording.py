"""Recording during training: the episodes that the training sample will keep, listened to while they are played.

Nothing that goes wrong here may end a training: recording stops, with one warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.rewards import first_odd, odd_reward
from epymarl_fairtest.core.scores import as_recorded
from epymarl_fairtest.host.tap import Paid, in_words
from epymarl_fairtest.team.sample import TrainingSample, keep_some


class Recording:
    def __init__(
        self,
        sample: TrainingSample,
        warn: Callable[[str], None],
        available: NDArray[np.bool_] | bool = True,  # (agents, actions): which actions exist
        reading: str = "q",
    ) -> None:
        self.sample, self._warn = sample, warn
        self._available, self._reading = np.asarray(available), reading
        self.sources: Sequence[Any] = ()  # whatever keeps rewards: one per environment
        self.broken = False
        self.always = False  # keep the rewards of every episode, for whoever looks at `played`
        self.played: list[Sequence[Paid]] = []  # rewards of the last episodes, one per environment

    @contextmanager
    def watching(self, runner: Any) -> Iterator[None]:
        """While the runner plays its next episodes: scores and per-agent rewards of those that will be kept."""
        first = self.sample.offered + 1
        wanted = [] if self.broken else self.sample.offer(runner.batch_size)
        if not wanted and not self.always:
            yield
            return
        mac, seen = runner.mac, []
        forward = mac.forward

        def listening_forward(*args: Any, **kwargs: Any) -> Any:
            out = forward(*args, **kwargs)
            seen.append(out.detach() if torch.is_tensor(out) else out)
            return out

        for source in self.sources:
            source.recorded = []
        if wanted:
            mac.forward = listening_forward  # on the instance, for this episode only: learners copy controllers
        try:
            yield
        finally:
            if wanted:
                del mac.forward
            self.played = recorded = [source.recorded for source in self.sources]
            for source in self.sources:
                source.recorded = None
        try:
            for position in wanted:
                row = position - first
                self._keep(position, recorded[row], [out[row] for out in seen])
        except Exception as error:  # whatever it is, training is worth more than our sample of it
            self._stop(in_words(error))

    def take(self, episodes: Episodes) -> None:
        """Training episodes that an engine of ours has played."""
        self.played = [paid[:length] for paid, length in zip(episodes.rewards, episodes.length, strict=True)]
        keep_some(self.sample, episodes)

    def _keep(self, position: int, paid: Sequence[Paid], scores: Sequence[Any]) -> None:
        broken = next((why for why in paid if isinstance(why, str)), None)
        if broken is not None:
            raise FairTestError(broken)
        rewards = np.array(paid, np.float64)
        odd = first_odd(rewards)
        if odd is not None:
            raise odd_reward(float(rewards[odd]), f"training episode {position}, step {odd[0]}, agent {odd[1]}")
        q = np.stack([out.cpu().numpy() for out in scores[: len(rewards)]]).astype(np.float32)
        self.sample.add(position, as_recorded(q, self._available, self._reading), rewards)

    def _stop(self, why: str) -> None:
        self.broken = True
        self.sample = TrainingSample(0, 0)  # a part of it would be the early episodes alone
        self._warn(
            f"FairTest records no more training episodes: {why.rstrip('.')}. Training continues; the team is tested"
            " without a sample of its training."
        )
