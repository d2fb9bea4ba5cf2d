from dataclasses import dataclass

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer


@dataclass
class Start:
    checkpoint: str
    max_length: int = 1536

    def tokenizer(self):
        return AutoTokenizer.from_pretrained(self.checkpoint)

    def model(self):
        net = AutoPeftModelForCausalLM.from_pretrained(
            self.checkpoint,
            dtype=torch.bfloat16,
            attn_implementation="sdpa",
        )
        net.config.use_cache = False
        return net


def encode(tok, row, max_length):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["clause"]}], tokenize=False, add_generation_prompt=True
    )
    whole = head + row["summary"] + tok.eos_token
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(whole, add_special_tokens=False)["input_ids"]
    return {"input_ids": b, "attention_mask": [1] * len(b), "labels": [-100] * len(a) + b[len(a):]}
