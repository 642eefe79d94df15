"""The fast engine: compiled twins of the tasks' environments, bit for bit equal to the originals.

A twin is trusted only after it has proved itself on this machine (`prove`): a few dozen episodes side by
side with the real environments.
"""

from epymarl_fairtest.engine.twin.engine import Twin, prove, twin_of

__all__ = ["Twin", "prove", "twin_of"]
