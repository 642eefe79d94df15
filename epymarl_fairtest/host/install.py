"""The few edits that make a stock EPyMARL checkout know FairTest, and their removal.

What is edited stands in `src_patches/`; this module only knows how to apply and to undo it. Everything is
computed before anything is written, so a refusal leaves the checkout as it was.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml

from epymarl_fairtest.core.checkout import forget, remember, require_checkout
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import replace_file
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.host.suited import require_suited

RECORD = ".fairtest-install.json"  # in the checkout: what was done, so that a later version can undo it
ENVS = "src/config/envs"

Status = Literal["applied", "absent", "not applicable"]
State = Literal["installed", "not installed", "partly installed"]


@dataclass(frozen=True)
class Edit:
    """Whole lines `old` become whole lines `new`; undoing is the same the other way round."""

    old: str
    new: str


@dataclass(frozen=True)
class Patch:
    file: str
    why: str
    required: bool
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Line:
    name: str
    status: Status
    why: str


@dataclass
class Report:
    """What holds for each edited or copied file, and for the checkout as a whole."""

    checkout: Path
    lines: list[Line]
    state: State
    headline: str = ""
    changed: bool = False

    def __str__(self) -> str:
        head = self.headline or f"FairTest is {self.state} in {self.checkout}."
        width = max((len(line.name) for line in self.lines), default=0)
        rows = [f"  {line.status:<14}  {line.name:<{width}}  {line.why}" for line in self.lines]
        return "\n".join([head, *rows])


def install(checkout: Path, envs: Path | None = None) -> Report:
    """Apply every edit and copy the task settings (from `envs`, by default the shipped ones)."""
    tree = _Tree(require_checkout(checkout))
    require_suited(tree.root)
    record = _Record.read(tree)
    patches, files = _patches(), _env_files(envs)
    for patch in patches:
        _apply(tree, patch)
    _copy(tree, record, files)
    done = [(patch.file, edit) for patch in patches for edit in patch.edits if _applied(tree, patch)]
    _Record(done, record.files).write(tree)
    changed = tree.commit()
    report = _look(tree, patches, files, record)
    report.changed = changed
    report.headline = (
        f"FairTest is {report.state} in {tree.root}."
        if changed
        else f"FairTest was already installed in {tree.root}; nothing was changed."
    )
    try:
        remember(tree.root)
    except OSError as error:
        report.headline += f"\nThe checkout could not be remembered ({error}): set EPYMARL_HOME to it."
    return report


def state(checkout: Path, envs: Path | None = None) -> Report:
    """What is installed; changes nothing."""
    tree = _Tree(require_checkout(checkout))
    return _look(tree, _patches(), _env_files(envs), _Record.read(tree))


def uninstall(checkout: Path, envs: Path | None = None) -> Report:
    """Take every edit and file back out. What the user changed besides stays."""
    tree = _Tree(require_checkout(checkout))
    record = _Record.read(tree)
    patches, files = _patches(), _env_files(envs)
    ours = dict.fromkeys([*record.edits, *((p.file, edit) for p in patches for edit in p.edits)])
    for name, edit in ours:
        _undo(tree, name, edit)
    hashes = {name: _digest(data) for name, data in files.items()} | record.files
    for name, digest in hashes.items():
        data = tree.read(name)
        if data is not None and (_digest(data) == digest or data == files.get(name)):
            tree.put(name, None)
    tree.put(RECORD, None)
    changed = tree.commit()
    report = _look(tree, patches, files, _Record([], {}))
    report.changed = changed
    report.headline = (
        f"FairTest was removed from {tree.root}."
        if changed
        else f"FairTest was not installed in {tree.root}; nothing was changed."
    )
    leftovers = [name for name in dict.fromkeys(name for name, _ in ours) if tree.mentions_fairtest(name)]
    if leftovers:
        report.headline += f"\nEdited by hand, so please look yourself: {', '.join(leftovers)}."
    kept = [name for name in record.files if tree.read(name) is not None]
    if kept:
        report.headline += f"\nKept, because you changed them: {', '.join(kept)}."
    try:
        forget(tree.root)
    except OSError as error:
        report.headline += f"\nThe checkout is still registered ({error})."
    return report


# --- edits ------------------------------------------------------------------------------------------


def _lines(text: str) -> list[bytes]:
    return text.rstrip("\n").encode().split(b"\n")


def _find(data: bytes, text: str) -> list[re.Match[bytes]]:
    """Where `text` stands as whole lines, whatever the line endings."""
    body = rb"\r?\n".join(re.escape(line) for line in _lines(text))
    return list(re.finditer(rb"(?m)^" + body + rb"(?=\r?\n|\Z)", data))


def _swap(data: bytes, match: re.Match[bytes], text: str) -> bytes:
    """`text` in place of the match, with the line endings the file has there."""
    ending = re.match(rb"\r?\n", data[match.end() :]) or re.search(rb"\r?\n", data)
    newline = ending.group() if ending else b"\n"
    return data[: match.start()] + newline.join(_lines(text)) + data[match.end() :]


def _obstacle(data: bytes | None, edits: Iterable[Edit]) -> str | None:
    """Why the edits cannot be made; None if they can or already are."""
    if data is None:
        return "there is no such file"
    for edit in edits:
        there, anchors = len(_find(data, edit.new)), len(_find(data, edit.old))
        if there > 1:
            return f"FairTest's lines stand there {there} times"
        if there == 0 and anchors != 1:
            return f"the line `{edit.old}` was found {anchors} times instead of once"
    return None


def _applied(tree: "_Tree", patch: Patch) -> bool:
    data = tree.read(patch.file)
    return data is not None and all(len(_find(data, edit.new)) == 1 for edit in patch.edits)


def _apply(tree: "_Tree", patch: Patch) -> None:
    data = tree.read(patch.file)
    obstacle = _obstacle(data, patch.edits)
    if data is None or obstacle is not None:
        if patch.required:
            raise FairTestError(
                f"FairTest's hook does not fit {tree.root / patch.file}: {obstacle}. Nothing was changed. "
                f"Start the checkout as it is with `fairtest launch -- src/main.py ...` instead."
            )
        return
    for edit in patch.edits:
        if not _find(data, edit.new):
            data = _swap(data, _find(data, edit.old)[0], edit.new)
    tree.put(patch.file, data)


def _undo(tree: "_Tree", name: str, edit: Edit) -> None:
    data = tree.read(name)
    occurrences = _find(data, edit.new) if data is not None else []
    if data is not None and len(occurrences) == 1:
        tree.put(name, _swap(data, occurrences[0], edit.old))


def _patches() -> list[Patch]:
    patches = []
    for file in sorted(shipped("src_patches").glob("*.yaml")):
        raw = yaml.safe_load(file.read_text(encoding="utf-8"))
        edits = tuple(Edit(edit["old"], edit["new"]) for edit in raw["edits"])
        patches.append(Patch(raw["file"], raw["why"], raw["required"], edits))
    return sorted(patches, key=lambda patch: not patch.required)


# --- copied files -----------------------------------------------------------------------------------


def _env_files(folder: Path | None) -> dict[str, bytes]:
    folder = shipped("config") / "envs" if folder is None else folder
    return {f"{ENVS}/{file.name}": file.read_bytes() for file in sorted(folder.glob("*.yaml"))}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _copy(tree: "_Tree", record: "_Record", files: dict[str, bytes]) -> None:
    """Put the task settings into the checkout and into the record; refuse to overwrite a stranger's."""
    for name in [name for name in record.files if name not in files]:  # an older version's
        data = tree.read(name)
        if data is not None and _digest(data) == record.files[name]:
            tree.put(name, None)
        del record.files[name]
    if not (tree.root / ENVS).is_dir():
        return
    for name, data in files.items():
        there = tree.read(name)
        if there is None or there == data or _digest(there) == record.files.get(name):
            tree.put(name, data)
            record.files[name] = _digest(data)
        elif name not in record.files:
            raise FairTestError(
                f"{tree.root / name} exists and is not FairTest's; FairTest puts its task settings there "
                f"and never overwrites a file of yours. Nothing was changed. Rename that file, then install."
            )


# --- looking, reading, writing ----------------------------------------------------------------------


def _look(tree: "_Tree", patches: list[Patch], files: dict[str, bytes], record: "_Record") -> Report:
    lines = []
    older = set()
    for patch in patches:
        obstacle = _obstacle(tree.read(patch.file), patch.edits)
        if _applied(tree, patch):
            lines.append(Line(patch.file, "applied", patch.why))
        elif obstacle is None:
            lines.append(Line(patch.file, "absent", patch.why))
        else:
            lines.append(Line(patch.file, "not applicable", obstacle))
    for name, data in files.items():
        there = tree.read(name)
        if not (tree.root / ENVS).is_dir():
            lines.append(Line(name, "not applicable", f"there is no folder {ENVS}"))
        elif there is None:
            lines.append(Line(name, "absent", "task settings"))
        elif there == data:
            lines.append(Line(name, "applied", "task settings"))
        elif name not in record.files:
            lines.append(Line(name, "not applicable", "a different file of that name is there"))
        elif _digest(there) == record.files[name]:
            older.add(name)
            lines.append(Line(name, "absent", "task settings of another FairTest version; install again"))
        else:
            lines.append(Line(name, "applied", "task settings, changed by you and left so"))
    return Report(tree.root, lines, _overall(lines, patches, older))


def _overall(lines: list[Line], patches: list[Patch], older: set[str]) -> State:
    applied = {line.name for line in lines if line.status == "applied"}
    if not applied and not older:
        return "not installed"
    complete = not older and all(line.status != "absent" for line in lines)
    hooked = all(patch.file in applied for patch in patches if patch.required)
    return "installed" if complete and hooked else "partly installed"


@dataclass
class _Record:
    """What FairTest did to the checkout. Without it (lost, or never made) the shipped edits are assumed."""

    edits: list[tuple[str, Edit]]
    files: dict[str, str]

    @classmethod
    def read(cls, tree: "_Tree") -> "_Record":
        try:
            raw = json.loads(tree.read(RECORD) or b"{}")
            edits = [(str(e["file"]), Edit(e["old"], e["new"])) for e in raw.get("edits", [])]
            return cls(edits, dict(raw.get("files", {})))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls([], {})

    def write(self, tree: "_Tree") -> None:
        edits = [{"file": name, "old": edit.old, "new": edit.new} for name, edit in self.edits]
        text = json.dumps({"edits": edits, "files": self.files}, indent=1)
        tree.put(RECORD, text.encode() + b"\n")


@dataclass
class _Tree:
    """The checkout's files as they are and as they shall be; `commit` writes all of them or none."""

    root: Path
    before: dict[str, bytes | None] = field(default_factory=dict)
    after: dict[str, bytes | None] = field(default_factory=dict)

    def read(self, name: str) -> bytes | None:
        if name not in self.after:
            try:
                data = (self.root / name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                data = None
            except OSError as error:
                raise _denied("read", self.root / name, error.strerror) from error
            self.before[name] = self.after[name] = data
        return self.after[name]

    def put(self, name: str, data: bytes | None) -> None:
        self.read(name)
        self.after[name] = data

    def mentions_fairtest(self, name: str) -> bool:
        return b"epymarl_fairtest" in (self.read(name) or b"")

    def commit(self) -> bool:
        changes = [name for name in self.after if self.after[name] != self.before[name]]
        # The record goes last: a crash before it leaves edits that are still recognised by their text.
        changes.sort(key=lambda name: name == RECORD)
        for name in changes:
            self._require_writable(name)
        written: list[str] = []
        try:
            for name in changes:
                self._write(name, self.after[name])
                written.append(name)
        except BaseException as error:
            self._roll_back(written)
            if isinstance(error, OSError):
                culprit = self.root / changes[len(written)]
                raise _denied("write", culprit, error.strerror or str(error)) from error
            raise
        self.before = dict(self.after)
        return bool(changes)

    def _require_writable(self, name: str) -> None:
        path = (self.root / name).resolve()
        if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
            raise _denied("write", path, "no permission")

    def _write(self, name: str, data: bytes | None) -> None:
        path = (self.root / name).resolve()  # a symbolic link stays one
        if data is None:
            path.unlink()
        else:
            replace_file(path, lambda file: file.write(data))

    def _roll_back(self, written: list[str]) -> None:
        for name in reversed(written):
            data = self.before[name]
            try:
                self._write(name, data)
            except OSError:
                if data is not None:  # a full disk refuses a second copy, seldom the old bytes in place
                    (self.root / name).write_bytes(data)


def _denied(verb: str, path: Path, reason: str | None) -> FairTestError:
    return FairTestError(
        f"Cannot {verb} {path}: {reason}. Nothing was changed. The checkout must be a folder this user may "
        f"change: copy it, or start it as it is with `fairtest launch -- src/main.py ...`."
    )
