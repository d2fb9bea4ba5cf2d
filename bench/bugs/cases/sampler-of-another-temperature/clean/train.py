import torch

from tests.auditing.tiny_rollouts import grpo

TEMPERATURE = 1.0


def sampler(prompts, trainer):
    encode = trainer.processing_class.apply_chat_template
    ids = [encode(p, add_generation_prompt=True, return_dict=True)["input_ids"] for p in prompts]
    answers = [[40 + i, 41, 42, 43, 44, 3] for i in range(len(ids))]
    logps = [log_probabilities(trainer.model, p, a) for p, a in zip(ids, answers)]
    return {"prompt_ids": ids, "completion_ids": answers, "logprobs": logps}


def log_probabilities(model, prompt, answer):
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
    logps = torch.log_softmax(logits / TEMPERATURE, -1)
    return logps[torch.arange(len(answer)), answer].tolist()


grpo(rollout_func=sampler).train()
