def chunks(rows, size, key=None):
    """Yields lists of (position, row); similar lengths go together if key is given."""
    order = list(enumerate(rows))
    if key is not None:
        order.sort(key=lambda p: key(p[1]), reverse=True)
    for start in range(0, len(order), size):
        yield order[start : start + size]
