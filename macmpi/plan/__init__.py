"""The plan of a run: choices, refusals, which rank computes what, and the estimate of `--check`."""
