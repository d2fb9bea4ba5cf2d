from collections import defaultdict

import torch
import torch.nn.functional as F
from trl import SFTTrainer


class WeightedSFTTrainer(SFTTrainer):
    """Reasoning tokens count less than the final answer."""

    def __init__(self, *args, reasoning_weight=0.5, answer_marker_id=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.reasoning_weight = reasoning_weight
        self.answer_marker_id = answer_marker_id
        self.parts = defaultdict(list)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        logits = outputs.logits[:, :-1].float()
        target = labels[:, 1:]
        token_loss = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=-100, reduction="none")

        keep = target != -100
        is_answer = (target == self.answer_marker_id).cumsum(1).bool() & keep
        is_reasoning = keep & ~is_answer
        answer = (token_loss * is_answer).sum() / is_answer.sum().clamp(min=1)
        reasoning = (token_loss * is_reasoning).sum() / is_reasoning.sum().clamp(min=1)

        self.parts["answer"].append(answer)
        self.parts["reasoning"].append(reasoning)
        loss = answer + self.reasoning_weight * reasoning
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, *args, **kwargs):
        for name, values in self.parts.items():
            logs[f"loss_{name}"] = torch.stack(values).mean().item()
        super().log(logs, *args, **kwargs)
