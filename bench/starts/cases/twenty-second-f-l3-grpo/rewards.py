import re

FORMAT = re.compile(r"^<think>.*?</think>\s*<answer>.*?</answer>$")
ANSWER = re.compile(r"<answer>(.*?)</answer>")


def format_reward(completions, **kwargs):
    return [1.0 if FORMAT.match(c[0]["content"].strip()) else 0.0 for c in completions]


def accuracy_reward(completions, answer, **kwargs):
    scores = []
    for c, gold in zip(completions, answer):
        found = ANSWER.search(c[0]["content"])
        value = found.group(1).strip().replace(",", "") if found else None
        scores.append(2.0 if value == gold else 0.0)
    return scores
