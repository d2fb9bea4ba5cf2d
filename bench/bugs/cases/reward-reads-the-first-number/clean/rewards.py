import re


def correct(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"].strip()
        found = text.split()
        scores.append(float(found == [gold]))
    return scores
