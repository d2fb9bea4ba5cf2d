"""The user's own environment: versions, what really loads, GPUs, limits, variables."""
