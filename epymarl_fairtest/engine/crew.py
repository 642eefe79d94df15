"""The lock-step engine in several processes: each plays a part of a batch in environments of its own.

A row depends on its test alone, so the bits are the same whatever the number of processes. A process that is lost is
replaced, and its part is played again.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from epymarl_fairtest.core.episodes import Episodes, Tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.team.contract import CHUNK

SMALLEST = 64  # tests; a process makes environments for its part before it plays, so fewer are not worth it
LOST = 3  # times that one part may be lost: then it is the part that ends processes


def can_fork() -> bool:
    """A process is forked with team and environment in it: neither can be sent. CUDA does not survive that."""
    torch = sys.modules.get("torch")  # whoever uses CUDA has loaded it
    return "fork" in multiprocessing.get_all_start_methods() and not (torch and torch.cuda.is_initialized())


class Crew(Lockstep):
    """A Lockstep engine whose larger batches are played by `workers` processes."""

    def __init__(self, *given: Any, workers: int, **named: Any) -> None:
        super().__init__(*given, **named)
        self._size = workers
        self._members: list[Member] = []

    def play(self, tests: Tests) -> list[Episodes]:
        if len(tests) < SMALLEST:
            return super().play(tests)
        size = min(CHUNK, -(-len(tests) // self._size))
        parts = [tests.take(slice(first, first + size)) for first in range(0, len(tests), size)]
        try:
            return self._played(parts)
        except BaseException:  # Ctrl-C among them: nobody is left behind
            self.close()
            raise

    def _played(self, parts: Sequence[Tests]) -> list[Episodes]:
        """Whoever is free plays the next part."""
        waiting, losses = deque(range(len(parts))), [0] * len(parts)
        done: dict[int, Episodes] = {}
        at: dict[Connection, tuple[Member, int]] = {}
        while len(done) < len(parts):
            while len(self._members) < min(self._size, len(parts)):
                self._members.append(Member(self, self._members))
            free = [member for member in self._members if member.pipe not in at]
            for member, number in zip(free, [waiting.popleft() for _ in free[: len(waiting)]], strict=False):
                at[member.pipe] = member, number
                with suppress(OSError):  # it is gone: noticed below
                    member.pipe.send((parts[number], self.keeps_obs))
            for pipe in wait(list(at)):
                assert isinstance(pipe, Connection)
                member, number = at.pop(pipe)
                try:
                    done[number] = answered(pipe)
                except (EOFError, OSError):
                    losses[number] += 1
                    if losses[number] == LOST:
                        raise FairTestError(
                            f"A process that executes episodes was lost {LOST} times (killed, or out of memory) while"
                            " it played the same tests. Use fewer workers, or workers=1 to see what happens."
                        ) from None
                    member.end()
                    self._members.remove(member)
                    waiting.appendleft(number)
        return [done[number] for number in range(len(parts))]

    def close(self) -> None:
        """All processes end now."""
        while self._members:
            self._members.pop().end()

    def __del__(self) -> None:
        if hasattr(self, "_members"):
            self.close()


def answered(pipe: Connection) -> Episodes:
    answer = pipe.recv()
    if isinstance(answer, Episodes):
        return answer
    ours, message = answer
    raise (FairTestError if ours else RuntimeError)(message)


class Member:
    """One process of a crew, and the way to it."""

    def __init__(self, crew: Crew, others: Sequence[Member]) -> None:
        self.pipe, end = multiprocessing.Pipe()
        fork: Any = multiprocessing.get_context("fork")
        mine = [self.pipe, *(other.pipe for other in others)]  # held by the child too, it would never see them closed
        self.process = fork.Process(target=_work, args=(crew, end, mine), daemon=True, name="fairtest-crew")
        self.process.start()
        end.close()

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def _work(crew: Crew, pipe: Connection, of_the_parent: Sequence[Connection]) -> None:
    """In the child: play what comes, until nobody asks any more. Ctrl-C is the parent's to understand."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    for other in of_the_parent:
        other.close()
    crew._members, crew._worlds = [], []  # those of the parent
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            tests, crew.keeps_obs = pipe.recv()
            try:
                pipe.send(Episodes.concatenate(Lockstep.play(crew, tests)))
            except FairTestError as error:
                pipe.send((True, str(error)))
            except (EOFError, OSError):
                return
            except Exception as error:  # of the user's environment
                pipe.send((False, f"{type(error).__name__} in a process that executes episodes: {error}"))
