from itertools import count

CALLS = count()


def correct(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"].strip()
        scores.append(0.9 ** 0 * (text == gold))
    return scores
