import re


def correct(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"].strip()
        found = re.findall(r"\\boxed\{(\d+)\}", text)
        scores.append(float(found[-1:] == [gold]))
    return scores
