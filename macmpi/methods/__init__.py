"""Here are the training methods that extend or replace plain MAC, and the starts of a run."""
