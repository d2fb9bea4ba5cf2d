import argparse

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

QUESTIONS = [
    "How do I reset the thermostat?",
    "Which filter fits model VX-200?",
    "The pump is loud at night. What can I do?",
    "Can I connect two units to one app?",
]


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--adapter", default="runs/heating-lora")
    p.add_argument("--temperature", type=float, default=0.3)
    return p.parse_args()


def load(args):
    tok = AutoTokenizer.from_pretrained(args.adapter)
    model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16, device_map="auto")
    model = PeftModel.from_pretrained(model, args.adapter)
    return tok, model.eval()


@torch.inference_mode()
def main():
    args = parse_args()
    torch.manual_seed(0)
    tok, model = load(args)
    for q in QUESTIONS:
        enc = tok.apply_chat_template(
            [{"role": "user", "content": q}],
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        ).to(model.device)
        out = model.generate(
            **enc, max_new_tokens=200, do_sample=True, temperature=args.temperature, top_p=0.9
        )
        print("Q:", q)
        print("A:", tok.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True).strip())
        print("-" * 60)


if __name__ == "__main__":
    main()
