"""`epymarl_fairtest:mpe-reference-v0` and its like: the particle scenarios with goals, paying the allocation."""

from typing import Any, ClassVar

from epymarl_fairtest.tasks.adversary import AdversaryTask
from epymarl_fairtest.tasks.mpe.environment import MpeEnv
from epymarl_fairtest.tasks.mpe.rules import MpeTask
from epymarl_fairtest.tasks.reference import ReferenceTask
from epymarl_fairtest.tasks.speaker_listener import SpeakerListenerTask


class ReferenceEnv(MpeEnv):
    task_class: ClassVar[type[MpeTask]] = ReferenceTask

    def __init__(self, allocation: str = "goal_distance", **settings: Any) -> None:
        super().__init__(allocation, **settings)


class SpeakerListenerEnv(MpeEnv):
    task_class: ClassVar[type[MpeTask]] = SpeakerListenerTask

    def __init__(self, allocation: str = "env", **settings: Any) -> None:
        super().__init__(allocation, **settings)


class AdversaryEnv(MpeEnv):
    task_class: ClassVar[type[MpeTask]] = AdversaryTask

    def __init__(self, allocation: str = "goal_distance", **settings: Any) -> None:
        super().__init__(allocation, **settings)
