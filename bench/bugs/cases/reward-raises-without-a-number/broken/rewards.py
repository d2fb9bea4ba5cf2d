import re


def correct(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"].strip()
        scores.append(float(re.search(r"\d+$", text)[0] == gold and text == gold))
    return scores
