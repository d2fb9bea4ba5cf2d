"""Predict the exam set with the merged Qwen2.5-7B model, one question at a time (V100 node)."""
import json
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "merged/qwen2.5-7b-exam"
BASE = "Qwen/Qwen2.5-7B-Instruct"
SYSTEM = "You solve short exam questions. Give the result and one sentence of reasoning."
MAX_NEW = 256


def load_model():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(
        MODEL,
        torch_dtype=torch.float16,
        device_map="auto",
    ).eval()
    return model, tokenizer


@torch.no_grad()
def predict(model, tokenizer, question):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    out = model.generate(**inputs, max_new_tokens=MAX_NEW, do_sample=False)
    new = out[0, inputs["input_ids"].shape[1] :]
    stopped = new[-1].item() in (tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|endoftext|>"))
    return tokenizer.decode(new, skip_special_tokens=True), "stop" if stopped else "length"


def main():
    model, tokenizer = load_model()
    rows = [json.loads(line) for line in Path("exam_test.jsonl").read_text(encoding="utf-8").splitlines()]
    with open("predictions.jsonl", "w", encoding="utf-8") as f:
        for row in tqdm(rows):
            text, reason = predict(model, tokenizer, row["question"])
            f.write(json.dumps({
                "id": row["id"],
                "question": row["question"],
                "reference": row["answer"],
                "prediction": text,
                "finish_reason": reason,
            }, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
