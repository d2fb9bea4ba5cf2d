from tests.auditing.tiny_rollouts import grpo

def reward(completions, **columns):
    return [float("a" in one) for one in completions]


grpo(reward=reward).train()
