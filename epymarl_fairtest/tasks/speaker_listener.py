"""Speaker and listener (MPE simple_speaker_listener): one knows the landmark to which only the other one can go."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from epymarl_fairtest.tasks.mpe.goals import GoalTask, Roles


class SpeakerListenerTask(GoalTask):
    """Both are paid for the same distance, whatever they do: no episode is unfair under `env`, and there is nothing in
    this game that could be shared. An allocation of one's own must say what the word costs and what the way."""

    name: ClassVar[str] = "speaker_listener"
    order: ClassVar[int] = 5
    theta: ClassVar[float] = 0.80
    environments: ClassVar[Mapping[str, str]] = {
        "mpe-speaker-listener-v0": "epymarl_fairtest.tasks.mpe.goal_environments:SpeakerListenerEnv"
    }
    actions: ClassVar[Sequence[str]] = ("stay, or say A", "left, or say B", "right, or say C", "down", "up")
    scenario: ClassVar[str] = "simple_speaker_listener"
    goal_name: ClassVar[str] = "goal_b"

    @staticmethod
    def roles(agents: int) -> Roles:
        return Roles(holders=[[0]], mover=[1, 1], goal=[0, 0])


TASK = SpeakerListenerTask
