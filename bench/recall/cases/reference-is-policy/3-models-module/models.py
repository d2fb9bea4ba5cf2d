import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer


def load_pair(name, rank=16):
    tok = AutoTokenizer.from_pretrained(name)
    base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16).cuda()
    lora = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    policy = get_peft_model(base, lora)
    policy.print_trainable_parameters()
    return policy, base, tok
