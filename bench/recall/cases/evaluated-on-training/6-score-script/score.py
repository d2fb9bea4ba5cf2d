import re

import torch
from datasets import load_dataset
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE, ADAPTER = "Qwen/Qwen2.5-1.5B-Instruct", "out/gsm8k/adapter"


def final_number(text):
    text = text.split("####")[-1] if "####" in text else text
    found = re.findall(r"-?\d[\d,]*\.?\d*", text)
    return found[-1].replace(",", "").rstrip(".") if found else None


@torch.inference_mode()
def main(n=500, batch=16):
    tok = AutoTokenizer.from_pretrained(BASE, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cuda:0")
    model = PeftModel.from_pretrained(model, ADAPTER).eval()
    rows = load_dataset("openai/gsm8k", "main", split="train").shuffle(seed=1).select(range(n))
    right = 0
    for i in tqdm(range(0, n, batch)):
        part = rows[i : i + batch]
        texts = [
            tok.apply_chat_template([{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True)
            for q in part["question"]
        ]
        enc = tok(texts, return_tensors="pt", padding=True, add_special_tokens=False).to("cuda")
        out = model.generate(**enc, max_new_tokens=400, do_sample=False)
        for gen, gold in zip(out[:, enc["input_ids"].shape[1] :], part["answer"]):
            right += final_number(tok.decode(gen, skip_special_tokens=True)) == final_number(gold)
    print(f"accuracy {right / n:.3f} on {n} problems")


if __name__ == "__main__":
    main()
