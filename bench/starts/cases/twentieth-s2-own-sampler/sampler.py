from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@dataclass
class SampleConfig:
    max_new_tokens: int = 1024
    temperature: float = 0.7
    top_p: float = 0.9
    banned: tuple[str, ...] = ("<tool_call>",)


class Sampler:
    """Sampling with our own top-p and a list of banned tokens."""

    def __init__(self, path: str, device: str = "cuda"):
        self.tok = AutoTokenizer.from_pretrained(path)
        self.model = AutoModelForCausalLM.from_pretrained(
            path, torch_dtype=torch.bfloat16, attn_implementation="sdpa"
        ).to(device)
        self.model.eval()
        self.device = device
        self.stop_ids = {self.tok.eos_token_id, self.tok.convert_tokens_to_ids("<|im_end|>")}

    def _pick(self, logits, cfg):
        probs = torch.softmax(logits.float() / cfg.temperature, dim=-1)
        sorted_probs, order = probs.sort(descending=True)
        keep = sorted_probs.cumsum(-1) - sorted_probs < cfg.top_p
        sorted_probs = sorted_probs * keep
        choice = torch.multinomial(sorted_probs / sorted_probs.sum(), 1)
        return order[choice]

    @torch.inference_mode()
    def answer(self, messages, cfg: SampleConfig = SampleConfig()):
        ids = self.tok.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt"
        ).to(self.device)
        start = ids.shape[1]
        banned = [self.tok.convert_tokens_to_ids(t) for t in cfg.banned]
        for _ in range(cfg.max_new_tokens):
            logits = self.model(input_ids=ids).logits[0, -1]
            logits[banned] = float("-inf")
            nxt = self._pick(logits, cfg)
            if nxt.item() in self.stop_ids:
                break
            ids = torch.cat([ids, nxt.view(1, 1)], dim=1)
        return self.tok.decode(ids[0, start:], skip_special_tokens=True), ids.shape[1] - start
