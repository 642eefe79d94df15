"""Executing tests: in the real environments in lock-step, or in their compiled twins where these prove equal."""
