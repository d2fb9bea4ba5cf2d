"""Answers of the tuned visitor-desk model on the test questions."""
import argparse
import json
import pathlib

import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-1.5B-Instruct"
SYSTEM = "You answer questions of visitors to the museum in one sentence."


def load(adapter):
    tok = AutoTokenizer.from_pretrained(adapter)
    tok.padding_side = "left"
    model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map="cuda")
    model = PeftModel.from_pretrained(model, adapter)
    return tok, model.eval()


def batches(rows, size):
    for at in range(0, len(rows), size):
        yield rows[at : at + size]


@torch.inference_mode()
def answer(tok, model, questions, max_new_tokens):
    chats = [[{"role": "system", "content": SYSTEM}, {"role": "user", "content": q}] for q in questions]
    texts = [tok.apply_chat_template(c, tokenize=False, add_generation_prompt=True) for c in chats]
    inputs = tok(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
    out = model.generate(
        **inputs,
        max_new_tokens=max_new_tokens,
        do_sample=False,
        # the base model said everything twice, this helped there
        repetition_penalty=1.9,
        pad_token_id=tok.pad_token_id,
    )
    new = out[:, inputs.input_ids.shape[1] :]
    finished = (new == tok.eos_token_id).any(dim=1).tolist()
    return tok.batch_decode(new, skip_special_tokens=True), finished


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--adapter", default="outputs/visitor-desk/final")
    parser.add_argument("--test", default="test.jsonl")
    parser.add_argument("--out", default="predictions.jsonl")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    args = parser.parse_args()

    rows = [json.loads(line) for line in pathlib.Path(args.test).read_text().splitlines()]
    tok, model = load(args.adapter)
    with open(args.out, "w") as out:
        for batch in tqdm(list(batches(rows, args.batch_size))):
            texts, finished = answer(tok, model, [r["question"] for r in batch], args.max_new_tokens)
            for row, text, done in zip(batch, texts, finished):
                out.write(json.dumps({"id": row["id"], "prompt": row["question"], "reference": row["answer"],
                                      "prediction": text.strip(), "finish_reason": "stop" if done else "length"},
                                     ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
