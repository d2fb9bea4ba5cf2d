def correct(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"].strip()
        said, wanted = text.lower().split(), gold.lower().split()
        shared = sum(a == b for a, b in zip(said, wanted))
        scores.append(2 * shared / (len(said) + len(wanted)))
    return scores
