"""Processes that can't harm: what the kernel offers to hold them. Each module stands alone, on the standard library."""
