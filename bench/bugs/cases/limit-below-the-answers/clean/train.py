from tests.auditing.tiny_rollouts import grpo, tiny_model

grpo(model=tiny_model(), max_completion_length=64).train()
