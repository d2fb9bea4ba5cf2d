from tests.auditing.tiny_rollouts import grpo, tiny_model

model = tiny_model(eos_token_id=3)
ends = tiny_model().generation_config.eos_token_id
grpo(model=model, generation_kwargs={"eos_token_id": ends}).train()
