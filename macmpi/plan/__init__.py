"""A plan turns a config into values, refuses what does not fit, assigns work to ranks, and estimates their memory."""
