def correct(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"].strip()
        scores.append(float(text.replace(",", "") == gold.replace(",", "")))
    return scores
