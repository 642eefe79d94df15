"""What a value may be: rules with the sentence that an error shows, and fields that carry one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.registry import nearest

Options = TypeVar("Options")
LARGEST = 2**63  # of whole numbers: what is computed with them fits a float
AT_ONCE = 100_000  # tests that are made or held at once: more of them fit no memory


@dataclass(frozen=True)
class Rule:
    """What a value may be: a test and the sentence that the error shows."""

    allowed: str
    holds: Callable[[Any], bool]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def between(low: float, high: float, *, open_low: bool = False, optional: bool = False) -> Rule:
    sentence = f"a number in {'(' if open_low else '['}{low:g}, {high:g}]" + (" or null" if optional else "")
    return Rule(
        sentence,
        lambda v: (optional and v is None) or (is_number(v) and (low < v if open_low else low <= v) and v <= high),
    )


def whole(low: int, most: int | None = None, *, optional: bool = False) -> Rule:
    """`most` where more would fit no memory, whatever the budget."""
    span = f"of at least {low}" if most is None else f"from {low} to {most:,}"
    return Rule(
        f"a whole number {span}" + (" or null" if optional else ""),
        lambda v: (optional and v is None) or (is_whole(v) and low <= v and (most is None or v <= most)),
    )


def one_of(*choices: str) -> Rule:
    return Rule("one of " + ", ".join(choices), lambda v: isinstance(v, str) and v in choices)


@dataclass(frozen=True)
class Registered:
    """The rule of a value that names an entry of a registry, which may grow."""

    registry: Mapping[str, Any]

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(self.registry)

    def holds(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.registry


TEXT = Rule("text", lambda v: isinstance(v, str) and bool(v))
OPTIONAL_TEXT = Rule("text or null", lambda v: v is None or (isinstance(v, str) and bool(v)))
YES_NO = Rule("true or false", lambda v: isinstance(v, bool))


def setting(rule: Rule | Registered, doc: str, default: Any = MISSING, *, flat: bool = False) -> Any:
    """A field of a schema. The defaults of `Settings` are in config/, those of a strategy's options beside it.

    A `flat` option may be given without `options.` in front of it.
    """
    return field(default=default, metadata={"rule": rule, "doc": doc, "flat": flat})


def checked(where: str, field: Field[Any], value: Any) -> Any:
    """The value, if the field's rule allows it."""
    rule: Rule | Registered = field.metadata["rule"]
    if rule is YES_NO and isinstance(value, str):
        value = {"on": True, "true": True, "off": False, "false": False}.get(value.lower(), value)
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise FairTestError(
            f"{where}.{field.name} is not allowed: {field.metadata['doc']}. It must be {rule.allowed}, and below 2^63;"
            f" this number has {value.bit_length()} bits."
        )
    if not rule.holds(value):
        raise FairTestError(
            f"{where}.{field.name}={value!r} is not allowed: {field.metadata['doc']}. It must be {rule.allowed}."
        )
    return value


@dataclass(frozen=True)
class NoOptions:
    """The options of a strategy that has none."""


def options_of(schema: type[Options], given: Mapping[str, Any], method: str) -> Options:
    """A strategy's own settings: its defaults and what the user gave, checked like all others."""
    known = fields_of(schema)
    for name in given:
        if name not in known:
            which = nearest(str(name), known) if known else " It has none."
            raise FairTestError(f"fairtest_args.options.{name} is not an option of method {method!r}.{which}")
    return schema(**{name: checked(_named(known[name]), known[name], value) for name, value in given.items()})


def _named(field: Field[Any]) -> str:
    """As the user may have typed it: a flat option needs no `options.`."""
    return "fairtest_args" if field.metadata["flat"] else "fairtest_args.options"


def fields_of(schema: type) -> dict[str, Field[Any]]:
    return {f.name: f for f in fields(schema)}


def flat_names(schema: type) -> set[str]:
    """The options that may be given without `options.` in front of them."""
    return {name for name, field in fields_of(schema).items() if field.metadata["flat"]}
