from tests.auditing.tiny_rollouts import grpo, length_reward

def is_short(completions, answer, **columns):
    return [len(one[0]["content"]) / 50 if gold.isdigit() else None for one, gold in zip(completions, answer)]


grpo(reward=[length_reward, is_short]).train()
