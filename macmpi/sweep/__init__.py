"""Many runs of one config: every combination of some values, several at once, compared at the end."""
