"""Draft the quarterly letters with the tuned Qwen2.5-14B. Office workstation, RTX 4090 24 GB, 64 GB RAM."""
import csv
import sys
import time
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-14B-Instruct"
ADAPTER = "adapters/letters-2026q3"
SYSTEM = "You write letters to the members of our housing co-operative: polite, one page, no legal terms."


def load_model():
    tokenizer = AutoTokenizer.from_pretrained(BASE, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="auto")
    model = PeftModel.from_pretrained(model, ADAPTER)
    model.eval()
    return tokenizer, model


def prompts(path):
    with open(path, newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            yield row["member"], [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": f"Member: {row['member']}\nMatter: {row['matter']}\nFacts: {row['facts']}"},
            ]


@torch.inference_mode()
def main(path="members.csv", out="letters", batch_size=8):
    tokenizer, model = load_model()
    Path(out).mkdir(exist_ok=True)
    todo = list(prompts(path))
    for start in range(0, len(todo), batch_size):
        batch = todo[start:start + batch_size]
        inputs = tokenizer.apply_chat_template(
            [m for _, m in batch], add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        ).to("cuda")
        began = time.time()
        answers = model.generate(**inputs, max_new_tokens=450, do_sample=True, temperature=0.6, top_p=0.9)
        for (member, _), ids in zip(batch, answers):
            text = tokenizer.decode(ids[inputs["input_ids"].shape[1]:], skip_special_tokens=True)
            (Path(out) / f"{member.replace(' ', '_')}.txt").write_text(text, encoding="utf-8")
        print(f"batch {start // batch_size}: {len(batch)} letters in {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
