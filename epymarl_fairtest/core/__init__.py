"""What everything else is made of: tests, episodes, judgements, indices, the ledger, randomness, files, one error.

Nothing here knows an environment, a policy or a training framework.
"""
