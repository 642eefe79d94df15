"""Foraging: level-based foraging (LBF)."""

from epymarl_fairtest.tasks.foraging.rules import ForagingTask

TASK = ForagingTask
