import argparse
import json

import torch
from datasets import load_dataset
from peft import AutoPeftModelForCausalLM
from tqdm.auto import tqdm
from transformers import AutoTokenizer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--run", default="runs/medqa-lora")
    p.add_argument("--data", default="data/medqa_test.jsonl")
    p.add_argument("--out", default="medqa_predictions.jsonl")
    return p.parse_args()


def exact(pred, gold):
    return pred.strip().lower().rstrip(".") == gold.strip().lower().rstrip(".")


def main():
    args = parse_args()
    tok = AutoTokenizer.from_pretrained(args.run)
    model = AutoPeftModelForCausalLM.from_pretrained(args.run, dtype=torch.bfloat16, device_map="cuda")
    model.eval()

    rows = load_dataset("json", data_files=args.data, split="train")
    print(f"{len(rows)} test rows")
    hits = 0
    with open(args.out, "w") as f, torch.inference_mode():
        for row in tqdm(rows, desc="test"):
            enc = tok.apply_chat_template(
                [{"role": "user", "content": row["question"]}],
                add_generation_prompt=True,
                return_tensors="pt",
                return_dict=True,
            ).to(model.device)
            out = model.generate(**enc, max_new_tokens=128, do_sample=False)
            pred = tok.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)
            hits += exact(pred, row["answer"])
            f.write(json.dumps({**row, "prediction": pred}) + "\n")
    print(f"exact match {hits / len(rows):.3f}")


if __name__ == "__main__":
    main()
