"""Collections of small arrays: the two workloads of the paper, and the peers."""
