"""Generate answers for the held-out cooking questions with the merged model."""
import argparse
import json
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="lenakoch/qwen2.5-3b-kitchen-v4")
    p.add_argument("--questions", default="heldout.jsonl")
    p.add_argument("--out", default="preds.jsonl")
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--max-new-tokens", type=int, default=256)
    return p.parse_args()


SYSTEM = "You are a helpful kitchen assistant. Answer briefly and give exact quantities."


def batches(items, n):
    for i in range(0, len(items), n):
        yield items[i : i + n]


def main():
    args = parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(
        args.model, torch_dtype=torch.bfloat16, device_map="cuda"
    ).eval()

    questions = [json.loads(l) for l in Path(args.questions).read_text().splitlines() if l.strip()]
    print(f"{len(questions)} questions, model {args.model}")

    with open(args.out, "w") as f:
        for batch in tqdm(list(batches(questions, args.batch_size))):
            chats = [
                [
                    {"role": "system", "content": SYSTEM},
                    {"role": "user", "content": q["question"]},
                ]
                for q in batch
            ]
            texts = [tokenizer.apply_chat_template(c, tokenize=False) for c in chats]
            enc = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
            enc = enc.to(model.device)
            with torch.inference_mode():
                out = model.generate(**enc, max_new_tokens=args.max_new_tokens, do_sample=False)
            new = out[:, enc["input_ids"].shape[1] :]
            for q, text in zip(batch, tokenizer.batch_decode(new, skip_special_tokens=True)):
                f.write(
                    json.dumps(
                        {"id": q["id"], "prompt": q["question"], "prediction": text, "reference": q["answer"]},
                        ensure_ascii=False,
                    )
                    + "\n"
                )


if __name__ == "__main__":
    main()
