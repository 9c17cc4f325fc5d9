"""Nets: kinds of layer, chains of maps, derivatives, losses."""
