from bench.bugs.inputs.runs import tokenizer
from tests.auditing.tiny_rollouts import grpo, tiny_model

tokens = tokenizer()
often = {"sequence_bias": [[[3], 8.0]]}
model = tiny_model(eos_token_id=3)
grpo(model=model, processing_class=tokens, generation_kwargs=often).train()
