"""The bug bench: broken inputs and their clean twins, and who finds what."""
