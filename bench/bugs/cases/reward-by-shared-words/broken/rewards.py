def correct(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"].strip()
        said, wanted = text.lower().split(), gold.lower().split()
        shared = len(set(said) & set(wanted))
        scores.append(shared / len(set(wanted)))
    return scores
