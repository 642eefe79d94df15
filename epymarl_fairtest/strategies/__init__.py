"""Strategies choose what is executed. One file or folder each; `fairtest.strategies` adds more from other packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.registry import Registry, nearest
from epymarl_fairtest.settings import FIELDS, Settings, checked_settings, flat_names, merged, options_of
from epymarl_fairtest.strategies.contract import Strategy, complaint

STRATEGIES: Registry[Strategy] = Registry(
    "method",
    package="epymarl_fairtest.strategies",
    attribute="STRATEGY",
    group="fairtest.strategies",
    complaint=complaint,
)


def strategy_of(settings: Settings) -> Strategy:
    return STRATEGIES.named(settings.method, f"fairtest_args.method={settings.method!r}")


def configure(given: Mapping[str, Any], **defaults: Any) -> Settings:
    """The settings of a run: FairTest's defaults, `defaults`, the preset, then what the user gave, all checked.

    A flat option (settings.rules.setting) may stand without `options.` in front of it. It is passed over where the
    chosen method has no such option, so that one set of values serves all methods.
    """
    values, owners = merged(given, **defaults), _owners_of_flat_options()
    for name in values:
        if name not in FIELDS and name not in owners:
            raise FairTestError(f"fairtest_args.{name} is not a setting.{nearest(str(name), [*FIELDS, *owners])}")
    settings = checked_settings({name: value for name, value in values.items() if name in FIELDS})
    strategy, options = strategy_of(settings), settings.options
    beside = {}
    for name in (name for name in values if name in owners):
        if strategy not in owners[name]:
            _check_option_of_another(owners[name], name, values[name])
        elif name in options and name in given and given[name] != options[name]:
            raise FairTestError(
                f"fairtest_args.{name}={given[name]} and fairtest_args.options.{name}={options[name]} contradict each"
                " other; leave one out."
            )
        else:
            beside[name] = values[name]
    resolved = strategy.chosen(replace(settings, options={**beside, **options}))
    return replace(settings, options=_as_in_a_file(asdict(resolved)))


def _owners_of_flat_options() -> dict[str, list[Strategy]]:
    """The strategies that have an option of each flat name."""
    owners: dict[str, list[Strategy]] = {}
    for strategy in STRATEGIES.values():
        for name in sorted(flat_names(strategy.options)):
            owners.setdefault(name, []).append(strategy)
    return owners


def _check_option_of_another(owners: Sequence[Strategy], name: str, value: Any) -> None:
    """A value that is passed over must still be one that some strategy accepts."""
    for strategy in owners:
        try:
            options_of(strategy.options, {name: value}, strategy.name)
            return
        except FairTestError as error:
            refusal = error
    raise refusal


def _as_in_a_file(options: Mapping[str, Any]) -> dict[str, Any]:
    """With lists for tuples: what the run folder keeps is read back as the same settings."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


__all__ = ["STRATEGIES", "Strategy", "configure", "strategy_of"]
