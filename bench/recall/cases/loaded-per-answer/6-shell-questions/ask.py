import argparse

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer
from transformers.utils import logging

logging.set_verbosity_error()


def build_parser():
    ap = argparse.ArgumentParser()
    ap.add_argument("--adapter", required=True)
    ap.add_argument("--question", required=True)
    ap.add_argument("--max_new_tokens", type=int, default=250)
    return ap


def main():
    a = build_parser().parse_args()
    tok = AutoTokenizer.from_pretrained(a.adapter)
    model = AutoPeftModelForCausalLM.from_pretrained(a.adapter, dtype=torch.bfloat16, device_map="cuda")
    model.eval()
    enc = tok.apply_chat_template(
        [{"role": "user", "content": a.question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=a.max_new_tokens, do_sample=False, temperature=None, top_p=None, top_k=None)
    text = tok.decode(out[0, enc["input_ids"].shape[1] :], skip_special_tokens=True)
    print(" ".join(text.split()))


if __name__ == "__main__":
    main()
