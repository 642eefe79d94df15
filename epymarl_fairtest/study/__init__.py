"""Studies: the same teams under every variant and seed, as jobs of this machine or a cluster, and their tables."""
