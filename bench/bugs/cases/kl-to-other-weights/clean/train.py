from tests.auditing.tiny_rollouts import grpo, tiny_model

trainer = grpo(beta=0.04)
trainer.ref_model.load_state_dict(tiny_model(seed=0).state_dict())
trainer.train()
