"""VMAS: the scenarios of the vectorised multi-agent simulator."""

from epymarl_fairtest.tasks.vmas.rules import VmasTask

TASK = VmasTask
