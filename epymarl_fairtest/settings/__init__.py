"""Settings: what may be set, its rules, and the values that a run begins with (config/)."""

from epymarl_fairtest.core.shipped import presets
from epymarl_fairtest.settings.assignments import parse_assignment, parse_assignments
from epymarl_fairtest.settings.rules import (
    AT_ONCE,
    LARGEST,
    OPTIONAL_TEXT,
    TEXT,
    YES_NO,
    NoOptions,
    Rule,
    between,
    fields_of,
    flat_names,
    is_number,
    is_whole,
    one_of,
    options_of,
    setting,
    whole,
)
from epymarl_fairtest.settings.schema import FIELDS, Settings, checked_settings, free_cores, merged

__all__ = [
    "AT_ONCE",
    "FIELDS",
    "LARGEST",
    "OPTIONAL_TEXT",
    "TEXT",
    "YES_NO",
    "NoOptions",
    "Rule",
    "Settings",
    "between",
    "checked_settings",
    "fields_of",
    "flat_names",
    "free_cores",
    "is_number",
    "is_whole",
    "merged",
    "one_of",
    "options_of",
    "parse_assignment",
    "parse_assignments",
    "presets",
    "setting",
    "whole",
]
