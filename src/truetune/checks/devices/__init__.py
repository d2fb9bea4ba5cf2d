"""Rules on the machine, the launch and the memory of a run."""
