"""Generic: any environment that no other task recognises."""

from epymarl_fairtest.tasks.generic.rules import GenericTask

TASK = GenericTask
