import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


class Sampler:
    """Top-p decoding with a list of words that must not come."""

    def __init__(self, run, device="cuda", banned=()):
        self.tok = AutoTokenizer.from_pretrained(run)
        self.model = AutoModelForCausalLM.from_pretrained(run, dtype=torch.bfloat16).to(device).eval()
        self.device = device
        self.banned = [
            t for w in banned for t in self.tok(w, add_special_tokens=False)["input_ids"][:1]
        ]

    def _next(self, logits, temperature, top_p):
        logits = logits.float() / temperature
        if self.banned:
            logits[:, self.banned] = float("-inf")
        probs, order = logits.softmax(-1).sort(descending=True, dim=-1)
        cut = probs.cumsum(-1) - probs > top_p
        probs = probs.masked_fill(cut, 0.0)
        pick = torch.multinomial(probs / probs.sum(-1, keepdim=True), 1)
        return order.gather(-1, pick)

    @torch.inference_mode()
    def reply(self, messages, max_new_tokens=300, temperature=0.7, top_p=0.9):
        text = self.tok.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = self.tok(text, add_special_tokens=False, return_tensors="pt")["input_ids"].to(self.device)
        start = ids.shape[1]
        for _ in range(max_new_tokens):
            logits = self.model(ids, logits_to_keep=1).logits[:, -1]
            token = self._next(logits, temperature, top_p)
            if token.item() == self.tok.eos_token_id:
                break
            ids = torch.cat([ids, token], dim=1)
        return self.tok.decode(ids[0, start:], skip_special_tokens=True)
