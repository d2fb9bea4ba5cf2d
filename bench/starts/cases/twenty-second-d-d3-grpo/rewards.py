import re

ANSWER = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL)
SHAPE = re.compile(r"^<think>.*?</think>\s*<answer>.*?</answer>\s*$", re.DOTALL)


def clean(text: str) -> str:
    return text.replace(",", "").replace("$", "").strip().rstrip(".")


def text_of(completion) -> str:
    return completion[0]["content"]


def format_reward(completions, **kwargs):
    return [0.2 if SHAPE.match(text_of(c)) else 0.0 for c in completions]


def correct_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        m = ANSWER.search(text_of(completion))
        rewards.append(1.0 if m and clean(m.group(1)) == clean(gold) else 0.0)
    return rewards
