import argparse
import json

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def load(base, adapter):
    tok = AutoTokenizer.from_pretrained(base, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16).to("cuda")
    model = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    return tok, model.eval()


def batches(rows, size):
    for i in range(0, len(rows), size):
        yield rows[i : i + size]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    ap.add_argument("--adapter", default="runs/qa/adapter")
    ap.add_argument("--questions", default="data/test.jsonl")
    ap.add_argument("--out", default="predictions.jsonl")
    ap.add_argument("--batch-size", type=int, default=16)
    args = ap.parse_args()

    tok, model = load(args.base, args.adapter)
    with open(args.questions) as fh:
        rows = [json.loads(line) for line in fh]

    with open(args.out, "w") as sink:
        for group in batches(rows, args.batch_size):
            chats = [[{"role": "user", "content": r["question"]}] for r in group]
            enc = tok.apply_chat_template(chats, add_generation_prompt=True, padding=True,
                                          return_dict=True, return_tensors="pt").to("cuda")
            with torch.inference_mode():
                out = model.generate(**enc, max_new_tokens=512, do_sample=False)
            answers = tok.batch_decode(out, skip_special_tokens=True)
            for row, answer in zip(group, answers):
                sink.write(json.dumps({"id": row["id"], "prediction": answer.strip(),
                                       "gold": row["answer"]}) + "\n")


if __name__ == "__main__":
    main()
