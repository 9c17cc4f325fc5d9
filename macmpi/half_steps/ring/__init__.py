"""ParMAC's W-step: submodels travel round a ring of ranks, points stay."""
