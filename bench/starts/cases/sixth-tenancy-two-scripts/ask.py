"""Ask the tuned tenancy model questions from the terminal."""
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "meta-llama/Llama-3.1-8B-Instruct"
ADAPTER = "out/tenancy"


def load():
    tokenizer = AutoTokenizer.from_pretrained(ADAPTER)
    model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map={"": 0})
    model = PeftModel.from_pretrained(model, ADAPTER)
    model.eval()
    return tokenizer, model


@torch.inference_mode()
def ask(tokenizer, model, question, max_new_tokens=300):
    inputs = tokenizer("Question: " + question + "\nAnswer:", return_tensors="pt").to(model.device)
    out = model.generate(
        **inputs,
        max_new_tokens=max_new_tokens,
        do_sample=False,
        pad_token_id=tokenizer.pad_token_id,
    )
    return tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip()


def main():
    tokenizer, model = load()
    for line in sys.stdin:
        question = line.strip()
        if question:
            print("Q:", question)
            print("A:", ask(tokenizer, model, question))
            print("-" * 60)


if __name__ == "__main__":
    main()
