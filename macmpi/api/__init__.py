"""Python programs train by this package: arrays go in, and a Model comes out."""
