"""The machine that a run is on: hosts, file systems, the lock of a folder; findings of the doctor, with remedies."""
