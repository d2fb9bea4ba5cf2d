import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

BASE = "Qwen/Qwen2.5-14B-Instruct"
ADAPTER = "out/notary/adapter"


def load_tokenizer():
    return AutoTokenizer.from_pretrained(BASE)


def load_base(device=0):
    return AutoModelForCausalLM.from_pretrained(
        BASE,
        quantization_config=BitsAndBytesConfig(load_in_8bit=True),
        dtype=torch.bfloat16,
        device_map={"": device},
    )
