"""All ranks import what is here, to start in little time: dataclasses that are cheap to define, tables of places."""
