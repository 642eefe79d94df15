"""What the compiled twins of several tasks share. Nothing here is imported before a twin is: numba takes a while."""
