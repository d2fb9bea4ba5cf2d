from tests.auditing.tiny_rollouts import grpo, tiny_model

grpo(model=tiny_model(eos_token_id=3), max_completion_length=6).train()
