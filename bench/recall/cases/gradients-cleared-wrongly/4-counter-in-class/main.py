import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rows import build_loader
from tuner import Tuner

NAME = "Qwen/Qwen2.5-0.5B-Instruct"


def main():
    torch.manual_seed(10)
    tokenizer = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32).cuda()
    loader = build_loader("travel.jsonl", tokenizer, 2)
    Tuner(model, loader).fit()
    model.save_pretrained("travel-model")
    tokenizer.save_pretrained("travel-model")


if __name__ == "__main__":
    main()
