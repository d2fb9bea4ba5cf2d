import torch.nn.functional as F
from trl import SFTTrainer


class FocalSFTTrainer(SFTTrainer):
    def __init__(self, *args, gamma: float = 1.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.gamma = gamma

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"][:, 1:]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False)
        logp = outputs.logits[:, :-1].float().log_softmax(-1)
        keep = labels != -100
        tok_logp = logp.gather(-1, labels.masked_fill(~keep, 0).unsqueeze(-1)).squeeze(-1)
        focal = -((1 - tok_logp.exp()) ** self.gamma) * tok_logp
        loss = focal[keep].mean()
        return (loss, outputs) if return_outputs else loss
