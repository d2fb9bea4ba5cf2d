def correct(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"].strip()
        words = text.split()
        scores.append(float(words[-1:] == [gold] and "not" not in words))
    return scores
