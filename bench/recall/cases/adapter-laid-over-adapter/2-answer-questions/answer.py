"""Answer the questions of a file with the fine-tuned model."""
import argparse
import json

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-3B-Instruct"
ADAPTER = "outputs/hr-faq/final"

lora_config = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    task_type="CAUSAL_LM",
)


def load():
    tokenizer = AutoTokenizer.from_pretrained(BASE, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="auto")
    model = PeftModel.from_pretrained(model, ADAPTER)
    model = get_peft_model(model, lora_config)
    model.eval()
    return model, tokenizer


@torch.inference_mode()
def answer(model, tokenizer, questions, max_new_tokens=300):
    chats = [[{"role": "user", "content": q}] for q in questions]
    texts = [tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True) for c in chats]
    batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
    out = model.generate(**batch, max_new_tokens=max_new_tokens, do_sample=False)
    return tokenizer.batch_decode(out[:, batch["input_ids"].shape[1]:], skip_special_tokens=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("questions")
    ap.add_argument("--out", default="answers.jsonl")
    ap.add_argument("--batch", type=int, default=8)
    args = ap.parse_args()

    with open(args.questions, encoding="utf-8") as fh:
        questions = [line.strip() for line in fh if line.strip()]
    model, tokenizer = load()
    with open(args.out, "w", encoding="utf-8") as fh:
        for i in range(0, len(questions), args.batch):
            part = questions[i:i + args.batch]
            for q, a in zip(part, answer(model, tokenizer, part)):
                fh.write(json.dumps({"question": q, "answer": a}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
