from functools import lru_cache

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@lru_cache(maxsize=None)
def get_model(name, dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(name, dtype=dtype, attn_implementation="sdpa").to("cuda")


@lru_cache(maxsize=None)
def get_tokenizer(name):
    return AutoTokenizer.from_pretrained(name)
