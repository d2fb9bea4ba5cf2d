IGNORE = -100


def ignore_outside(ids, mask):
    """Copies ids and leaves out what the mask leaves out."""
    labels = list(ids)
    for i, m in enumerate(mask):
        if not m:
            labels[i] = IGNORE
    return labels
