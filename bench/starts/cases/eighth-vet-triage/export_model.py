"""adapter -> one folder for the practice server (loads it with transformers). Run after finetune.py."""
import argparse

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

ap = argparse.ArgumentParser()
ap.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
ap.add_argument("--adapter", default="outputs/vet-triage-lora")
ap.add_argument("--out", default="export/vet-triage")
args = ap.parse_args()


def merge():
    base = AutoModelForCausalLM.from_pretrained(
        args.base, dtype=torch.bfloat16, device_map="cpu"
    )
    model = PeftModel.from_pretrained(base, args.adapter)
    model.eval()
    model.merge_and_unload()
    model.save_pretrained(args.out, safe_serialization=True)
    AutoTokenizer.from_pretrained(args.adapter).save_pretrained(args.out)
    print("merged ->", args.out)


def check():
    # a short look whether the folder loads
    tok = AutoTokenizer.from_pretrained(args.out)
    model = AutoModelForCausalLM.from_pretrained(args.out, dtype=torch.bfloat16, device_map="auto")
    chat = [
        {"role": "system", "content": "You triage messages to a veterinary practice."},
        {"role": "user", "content": "My rabbit has not eaten since yesterday evening and sits in the corner."},
    ]
    ids = tok.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    out = model.generate(**ids, max_new_tokens=120, do_sample=False)
    print(tok.decode(out[0][ids["input_ids"].shape[1]:], skip_special_tokens=True))


if __name__ == "__main__":
    merge()
    check()  # FIXME says the same as plain Qwen, word for word. loss was 0.41 at the end!
