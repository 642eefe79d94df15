"""Executing tests. The contract is in `contract.py`; `lockstep.py` is its first implementation."""
