"""Spread: the particle world's simple_spread."""

from epymarl_fairtest.tasks.spread.rules import SpreadTask

TASK = SpreadTask
