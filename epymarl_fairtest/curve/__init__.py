"""Fairness while a team learns: the same random executions at every test of the host, beside its learning curve."""
