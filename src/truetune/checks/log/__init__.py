"""Rules on the log of a run."""
