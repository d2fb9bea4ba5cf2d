"""The log of a run, whoever wrote it."""
