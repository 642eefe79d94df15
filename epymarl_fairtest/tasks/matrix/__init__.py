"""Matrix games."""

from epymarl_fairtest.tasks.matrix.rules import MatrixTask

TASK = MatrixTask
