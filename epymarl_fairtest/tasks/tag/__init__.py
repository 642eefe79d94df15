"""Tag: the particle world's simple_tag, the paper's PP."""

from epymarl_fairtest.tasks.tag.rules import TagTask

TASK = TagTask
