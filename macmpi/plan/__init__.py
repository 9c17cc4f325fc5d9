"""The plan of a run: a config as values, refusals, which rank computes what, and the estimate of `--check`."""
