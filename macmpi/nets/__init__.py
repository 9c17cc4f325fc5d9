"""Nets: the kinds of layers, chains of maps, their derivatives, and losses."""
