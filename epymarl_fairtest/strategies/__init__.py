"""Strategies choose what is executed. One file or folder each; `fairtest.strategies` adds more from other packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.registry import Registry, nearest
from epymarl_fairtest.settings import FIELDS, Settings, checked, checked_settings, fields_of, flat_names, merged
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

    A flat option (settings.rules.setting) may stand without `options.` in front of it. It is checked, but not used,
    where the chosen method has no such option, so that one set of values serves all methods.
    """
    values = merged(given, **defaults)
    flat = {name for strategy in STRATEGIES.values() for name in flat_names(strategy.options)}
    for name in values:
        if name not in FIELDS and name not in flat:
            raise FairTestError(f"fairtest_args.{name} is not a setting.{nearest(str(name), [*FIELDS, *sorted(flat)])}")
    chosen = checked_settings({name: value for name, value in values.items() if name in FIELDS})
    strategy = strategy_of(chosen)
    own = flat_names(strategy.options)
    for name in flat & (values.keys() - own):
        _check_unused(name, values[name])
    for name in own & chosen.options.keys() & given.keys():
        if given[name] != chosen.options[name]:
            raise FairTestError(
                f"fairtest_args.{name}={given[name]} and fairtest_args.options.{name}={chosen.options[name]} contradict"
                " each other; leave one out."
            )
    beside = {name: value for name, value in values.items() if name in own}
    resolved = asdict(strategy.chosen(_with_options(chosen, {**beside, **chosen.options})))
    # Lists, as YAML and JSON give them back: settings read from a manifest equal those that were written to it.
    return _with_options(chosen, {k: list(v) if isinstance(v, tuple) else v for k, v in resolved.items()})


def _check_unused(name: str, value: Any) -> None:
    """A flat option that the chosen method does not have: one of those that have it must allow the value."""
    refusals = []
    for strategy in STRATEGIES.values():
        if name in flat_names(strategy.options):
            try:
                checked("fairtest_args", fields_of(strategy.options)[name], value)
                return
            except FairTestError as refusal:
                refusals.append(refusal)
    raise refusals[0]


def _with_options(settings: Settings, options: Mapping[str, Any]) -> Settings:
    return replace(settings, options=dict(options))


__all__ = ["STRATEGIES", "Strategy", "configure", "strategy_of"]
