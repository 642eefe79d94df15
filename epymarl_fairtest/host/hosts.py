"""What differs between the training frameworks, and nothing else."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np


class Host:
    """One loaded training framework of the EPyMARL family."""

    name: str
    prefix: str  # of its modules
    plots_info: bool  # does it draw every entry of sacred's info, and stop at one that is no curve?

    @property
    def runners(self) -> dict[str, Any]:
        registry: dict[str, Any] = importlib.import_module(f"{self.prefix}runners").REGISTRY
        return registry

    @property
    def environments(self) -> dict[str, Any]:
        registry: dict[str, Any] = importlib.import_module(f"{self.prefix}envs").REGISTRY
        return registry

    def environment_arguments(self, args: Any) -> dict[str, Any]:
        """What the host's runner makes one environment with."""
        raise NotImplementedError

    def results_folder(self, args: Any) -> Path:
        """Where this run's FairTest folder goes unless the user says otherwise."""
        raise NotImplementedError

    def models_folder(self, args: Any) -> Path:
        """Where the host saves this run's models."""
        raise NotImplementedError

    @staticmethod
    def played(batch: Any, returns: list[Any]) -> Any:
        """What the host's runners give back when they have played."""
        raise NotImplementedError

    @staticmethod
    def ended(result: tuple[Any, ...]) -> bool:
        """Is the episode over, by what the environment inside the host's wrapper returned from `step`?"""
        raise NotImplementedError


class Epymarl(Host):
    name = "EPyMARL"
    prefix = ""
    plots_info = False

    def environment_arguments(self, args: Any) -> dict[str, Any]:
        extra = {n: getattr(args, n) for n in ("common_reward", "reward_scalarisation") if hasattr(args, n)}
        return {**args.env_args, **extra}

    def results_folder(self, args: Any) -> Path:
        # The host's token has a space and colons in it; a folder to be typed should not.
        token: str = args.unique_token.replace(" ", "_").replace(":", "-")
        return Path(args.local_results_path) / "fairtest" / token

    def models_folder(self, args: Any) -> Path:
        return Path(args.local_results_path) / "models" / str(args.unique_token)

    @staticmethod
    def played(batch: Any, returns: list[Any]) -> Any:
        return batch

    @staticmethod
    def ended(result: tuple[Any, ...]) -> bool:
        return bool(np.all(result[2]) or result[3])


class PymarlZoo(Host):
    name = "PyMARLzoo+"
    prefix = "pymarlzooplus."
    plots_info = True

    def environment_arguments(self, args: Any) -> dict[str, Any]:
        return dict(args.env_args)

    def results_folder(self, args: Any) -> Path:
        return Path(args.results_path) / "fairtest"

    def models_folder(self, args: Any) -> Path:
        return Path(args.results_path) / "models"

    @staticmethod
    def played(batch: Any, returns: list[Any]) -> Any:
        return batch, returns

    @staticmethod
    def ended(result: tuple[Any, ...]) -> bool:
        return bool(np.all(result[2]))


def loaded_hosts() -> list[Host]:
    """The frameworks whose runners this process has imported."""
    return [host for host in (Epymarl(), PymarlZoo()) if f"{host.prefix}runners" in sys.modules]
