"""The steps after the search: what is done with its failures. One file each, in their order."""

from __future__ import annotations

from epymarl_fairtest.campaign.steps.contract import Step, complaint
from epymarl_fairtest.core.registry import Registry

STEPS: Registry[Step] = Registry(
    "step", package="epymarl_fairtest.campaign.steps", attribute="STEP", group="fairtest.steps", complaint=complaint
)

__all__ = ["STEPS", "Step"]
