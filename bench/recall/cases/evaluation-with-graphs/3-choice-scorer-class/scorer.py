import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer


class ChoiceScorer:
    """Picks the answer with the highest mean log-probability."""

    def __init__(self, path, device="cuda"):
        self.tok = AutoTokenizer.from_pretrained(path, padding_side="right")
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
        self.model = model.to(device).eval()
        self.device = device

    def scores(self, question, choices):
        head = self.tok.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        n_head = len(self.tok(head, add_special_tokens=False)["input_ids"])
        enc = self.tok([head + c for c in choices], return_tensors="pt", padding=True, add_special_tokens=False)
        enc = enc.to(self.device)
        logits = self.model(**enc).logits
        logp = F.log_softmax(logits[:, :-1].float(), dim=-1)
        picked = logp.gather(-1, enc["input_ids"][:, 1:, None]).squeeze(-1)
        mask = enc["attention_mask"][:, 1:].clone().float()
        mask[:, : n_head - 1] = 0
        return ((picked * mask).sum(1) / mask.sum(1)).tolist()

    def choose(self, question, choices):
        s = self.scores(question, choices)
        return max(range(len(s)), key=s.__getitem__)
