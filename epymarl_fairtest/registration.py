"""Gymnasium ids of the environments that pay the allocation as the per-agent reward.

The ids contain `mpe` or `lbforaging` because PyMARLzoo+ only accepts keys that do.
Entry points are strings: nothing heavy is imported until an environment is made.
"""

import gymnasium

IDS = {
    "mpe-spread-v0": "epymarl_fairtest.tasks.spread:SpreadEnv",
    "mpe-tag-v0": "epymarl_fairtest.tasks.tag:TagEnv",
    "lbforaging-v0": "epymarl_fairtest.tasks.foraging:make_foraging_env",
}

for _id, _entry_point in IDS.items():
    if _id not in gymnasium.registry:
        # The host adds its own TimeLimit, and the checker is as slow as the environments.
        gymnasium.register(_id, entry_point=_entry_point, disable_env_checker=True)
