"""The settings of GMT."""

from __future__ import annotations

from dataclasses import dataclass

from epymarl_fairtest.settings import AT_ONCE, between, setting, whole


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
