"""The Python interface, and what the commands share with it: test a team, look at a run, compare two, repair."""
