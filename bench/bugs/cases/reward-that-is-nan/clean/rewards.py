def correct(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"].strip()
        length = len(text.split())
        scores.append(float(text == gold) if length else 0.0)
    return scores
