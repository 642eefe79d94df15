"""What the compiled twins of several tasks share. Nothing here is imported before a twin is: numba takes a while.

On a cold cache, what is called in one or two places is inlined by numba instead of being compiled by itself, too, and
arrays are made before a kernel is called: numba compiles its own ways of making them again and again
(docs/decisions/078).
"""
