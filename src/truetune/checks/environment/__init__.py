"""Rules on the user's own environment: packages, GPUs, limits, variables."""
