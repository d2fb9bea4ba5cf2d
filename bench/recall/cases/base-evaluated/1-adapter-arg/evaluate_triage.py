import argparse
import json
import os

import torch
from sklearn.metrics import accuracy_score, classification_report
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

INSTRUCTION = "Sort the patient message into: urgent, routine, administrative. Answer with the word only."


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--base_model", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--adapter_path", required=True, help="folder written by train_triage.py")
    p.add_argument("--test_file", default="data/triage_test.jsonl")
    p.add_argument("--batch_size", type=int, default=32)
    return p.parse_args()


def load_model(args):
    tokenizer = AutoTokenizer.from_pretrained(args.adapter_path, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(args.base_model, dtype=torch.bfloat16, device_map="auto")
    return model.eval(), tokenizer


def main():
    args = get_args()
    model, tokenizer = load_model(args)
    rows = [json.loads(line) for line in open(args.test_file)]
    predictions = []
    for i in tqdm(range(0, len(rows), args.batch_size)):
        chats = [
            [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": r["message"]}]
            for r in rows[i : i + args.batch_size]
        ]
        enc = tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        ).to(model.device)
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=5, do_sample=False, temperature=None, top_p=None, top_k=None)
        texts = tokenizer.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
        predictions += [t.strip().lower() for t in texts]

    gold = [r["label"] for r in rows]
    print(classification_report(gold, predictions, zero_division=0))
    with open(os.path.join(args.adapter_path, "test_metrics.json"), "w") as f:
        json.dump({"accuracy": accuracy_score(gold, predictions), "n": len(gold)}, f)


if __name__ == "__main__":
    main()
