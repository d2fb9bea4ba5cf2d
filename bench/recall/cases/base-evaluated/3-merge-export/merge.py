"""python merge.py --base ... --adapter ... --out ..."""
import argparse

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def load_base(name):
    return AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, device_map="cpu", low_cpu_mem_usage=True)


def merge(base_name, adapter):
    tuned = PeftModel.from_pretrained(load_base(base_name), adapter)
    return tuned.merge_and_unload(safe_merge=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="google/gemma-2-2b-it")
    ap.add_argument("--adapter", default="runs/gemma-poems/checkpoint-900")
    ap.add_argument("--out", default="export/gemma-poems")
    ap.add_argument("--shard", default="4GB")
    a = ap.parse_args()

    model = load_base(a.base)
    tokenizer = AutoTokenizer.from_pretrained(a.adapter)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        raise SystemExit("adapter was trained with extra tokens, resize first")

    merge(a.base, a.adapter)
    model.save_pretrained(a.out, max_shard_size=a.shard)
    tokenizer.save_pretrained(a.out)
    print("written to", a.out)


if __name__ == "__main__":
    main()
