"""What every fairness index keeps to: `check_index(INDEX)`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from epymarl_fairtest.core.indices import Index
from epymarl_fairtest.core.indices.contract import Array, complaint

TEAMS = range(2, 7)  # agents
SAMPLES = 500
CLOSE = 1e-9


def check_index(index: Index) -> None:
    """All of the contract; an AssertionError says what is not kept."""
    for contract in CONTRACTS:
        contract(index)


def is_complete(index: Index) -> None:
    """It has a name, a label, a function and a lowest value."""
    lacking = complaint(index)
    assert lacking is None, f"the index {lacking}"


def stays_in_range(index: Index) -> None:
    """From 0 to 1, whatever the signs and sizes of what was received."""
    for received in _samples():
        value = index(received)
        assert value.shape == received.shape[:-1], (
            f"{index.name} gives the shape {value.shape} for {received.shape}; it must be one number per row"
        )
        outside = ~((value >= 0) & (value <= 1))
        assert not outside.any(), (
            f"{index.name} is {value[outside][0]} for {received[outside][0]}; it must be in [0, 1]"
        )


def is_one_for_equal_shares(index: Index) -> None:
    for agents in TEAMS:
        for amount in (1.0, -3.0, 1e-300, 1e300):
            value = float(index(np.full((1, agents), amount))[0])
            assert abs(value - 1) < CLOSE, f"{index.name} is {value} where {agents} agents receive {amount} each, not 1"


def is_undefined_where_nobody_received_anything(index: Index) -> None:
    """NaN there, and nowhere else."""
    for agents in TEAMS:
        value = index(np.zeros((2, agents)))
        assert np.isnan(value).all(), f"{index.name} is {value[0]} where nobody received anything; it must be NaN"
    for received in _samples():
        missing = np.isnan(index(received))
        assert not missing.any(), f"{index.name} is NaN for {received[missing][0]}, where somebody received something"


def ignores_scale(index: Index) -> None:
    for received in _samples():
        for factor in (1e-6, 3.0, 1e6):
            apart = np.abs(index(received) - index(factor * received))
            assert apart.max() < CLOSE, f"{index.name} of {received[apart.argmax()]} changes with its scale"


def ignores_who_is_who(index: Index) -> None:
    generator = np.random.default_rng(1)
    for received in _samples():
        apart = np.abs(index(received) - index(received[:, generator.permutation(received.shape[1])]))
        assert apart.max() < CLOSE, f"{index.name} of {received[apart.argmax()]} changes with the order of the agents"


def does_not_depend_on_the_batch(index: Index) -> None:
    """A row alone gives the number that it gives among others, and what is handed in stays as it is."""
    for received in _samples():
        before, whole = received.copy(), index(received)
        alone = np.array([float(index(row)) for row in received[:20]])
        assert np.array_equal(whole[:20], alone), f"{index.name} of a row changes with the rows beside it"
        assert np.array_equal(received, before), f"{index.name} changes the array it is given"


def has_a_lower_bound(index: Index) -> None:
    """`lowest` is the least it can be where all receive rewards of one sign."""
    for received in _samples(signs=(1, -1)):
        bound, least = index.lowest(received.shape[1]), float(index(received).min())
        assert 0 <= bound < 1, f"{index.name}.lowest({received.shape[1]}) is {bound}; it must be in [0, 1)"
        assert least >= bound - CLOSE, f"{index.name} goes down to {least}, below its lowest value {bound}"


CONTRACTS = (
    is_complete,
    stays_in_range,
    is_one_for_equal_shares,
    is_undefined_where_nobody_received_anything,
    ignores_scale,
    ignores_who_is_who,
    does_not_depend_on_the_batch,
    has_a_lower_bound,
)


def _samples(signs: tuple[int, ...] = (1, -1, 0)) -> Iterator[Array]:
    """What teams of several sizes may receive: of one sign or, for 0, of both; shared by all or kept by one."""
    generator = np.random.default_rng(0)
    for agents in TEAMS:
        for sign in signs:
            received = generator.exponential(size=(SAMPLES, agents)) ** generator.choice([0.2, 1, 5], (SAMPLES, 1))
            received[:agents] = np.eye(agents)  # one has it all
            yield received * (sign or generator.choice([-1, 1], received.shape))
