"""Answer the 40 hold-out questions of the HR desk with the tuned model and write them to answers.csv."""
import csv
import sys

import torch
from unsloth import FastLanguageModel

BASE = "unsloth/Qwen2.5-7B-Instruct-bnb-4bit"
LORA_DIR = "hr_faq_lora"          # written by finetune_hr_faq.ipynb
MAX_SEQ = 2048

SYSTEM = "You are the HR assistant of Nordwind Logistics. Answer from the company handbook."


def load_model():
    model, tokenizer = FastLanguageModel.from_pretrained(
        model_name=BASE,
        max_seq_length=MAX_SEQ,
        dtype=None,
        load_in_4bit=True,
    )
    # same LoRA settings as in training
    model = FastLanguageModel.get_peft_model(
        model,
        r=16,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        lora_alpha=16,
        lora_dropout=0,
        bias="none",
        use_gradient_checkpointing="unsloth",
        random_state=3407,
    )
    FastLanguageModel.for_inference(model)
    return model, tokenizer


def answer(model, tokenizer, question: str) -> str:
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question},
    ]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_tensors="pt", return_dict=True
    ).to("cuda")
    with torch.inference_mode():
        out = model.generate(**inputs, max_new_tokens=256, do_sample=False)
    return tokenizer.decode(out[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True).strip()


def main(path="holdout_questions.txt"):
    model, tokenizer = load_model()
    print(f"loaded {BASE} with LoRA from {LORA_DIR}")
    with open(path, encoding="utf-8") as f, open("answers.csv", "w", newline="", encoding="utf-8") as g:
        writer = csv.writer(g)
        writer.writerow(["question", "answer"])
        for line in f:
            q = line.strip()
            if q:
                writer.writerow([q, answer(model, tokenizer, q)])


if __name__ == "__main__":
    main(*sys.argv[1:])
