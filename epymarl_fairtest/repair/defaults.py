"""How a repair is done unless it is told otherwise. Plain numbers, so that a command's help can name them."""

STEPS = 300_000  # of training, per arm
SHARE = 0.3  # of the episodes from failing starts
MAX_LOSS = 0.02  # of the return before
SEEDS = 3
EXECUTIONS = 20_000  # fresh ones, to judge by
TIMEOUT = 20.0  # seconds to wait for a cluster
