import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine import Engine, Plan
from rows import ChatRows, PadRight

BASE = "Qwen/Qwen2.5-7B-Instruct"


def main():
    torch.manual_seed(31)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16).cuda()
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    loader = DataLoader(
        ChatRows("agents.jsonl", tokenizer), 2, shuffle=True, drop_last=True,
        collate_fn=PadRight(tokenizer.pad_token_id),
    )
    Engine(model, loader, Plan()).run()
    model.save_pretrained("agents-adapter")
    tokenizer.save_pretrained("agents-adapter")


if __name__ == "__main__":
    main()
