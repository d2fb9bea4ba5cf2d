def copied(enc):
    return list(enc["input_ids"])


def hide_prompt(labels, n):
    labels[:n] = [-100] * n
    return labels
