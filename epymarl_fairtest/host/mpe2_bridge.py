"""EPyMARL's `pz-mpe-…` environments from mpe2, for a pettingzoo that no longer holds MPE.

EPyMARL looks for files inside pettingzoo and imports `pettingzoo.mpe.<name>`. The bridge registers the
ids and lets that import resolve to mpe2's module itself, not to a second copy with classes of its own.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import gymnasium

OLD, NEW = "pettingzoo.mpe", "mpe2"
ENTRY_POINT = "envs.pz_wrapper:PettingZooWrapper"


class _Alias(MetaPathFinder, Loader):
    """`pettingzoo.mpe` and everything below it is mpe2; nothing is imported before somebody asks."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == OLD or fullname.startswith(OLD + "."):
            return spec_from_loader(fullname, self)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(NEW + spec.name[len(OLD) :])
        # The import system is about to write the alias' spec into mpe2's module.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        alias = module.__spec__
        if alias is not None and alias.loader is self:
            module.__spec__ = alias.loader_state


def pettingzoo_has_mpe() -> bool:
    """Does the installed pettingzoo hold MPE's environments? (1.26 and later keep an empty folder.)"""
    return any(any((folder / "mpe").glob("*_v?.py")) for folder in _folders("pettingzoo"))


def activate() -> bool:
    """Bridge if needed and possible; True if the bridge stands. Cheap, and harmless to repeat."""
    if not _folders("pettingzoo") or not _folders(NEW) or pettingzoo_has_mpe():
        return False
    if not any(isinstance(finder, _Alias) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Alias())
    for folder in _folders(NEW):
        for file in sorted(folder.glob("*_v?.py")):
            _register(file.stem)
    return True


def _register(name: str) -> None:
    gym_id = f"pz-mpe-{name.replace('_', '-')}"
    if gym_id not in gymnasium.registry:
        gymnasium.register(gym_id, entry_point=ENTRY_POINT, kwargs={"lib_name": "mpe", "env_name": name})


def _folders(package: str) -> list[Path]:
    """Where `package` lies, without importing it; empty if it is not installed."""
    spec = find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
