from tests.auditing.tiny_rollouts import grpo, tiny_model

grpo(model=tiny_model(attention_dropout=0.1), num_iterations=2, max_steps=3).train()
