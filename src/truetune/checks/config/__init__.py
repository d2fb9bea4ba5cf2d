"""Rules on the settings of a run."""
