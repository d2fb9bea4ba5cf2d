"""The values of `device_map` that spread one model over the GPUs of a machine."""

SPREADING_DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
"""accelerate puts layers on one GPU after the other; the forward pass then goes through them in turn"""
