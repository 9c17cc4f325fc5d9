"""Training from Python: arrays go in, a Model comes out."""
