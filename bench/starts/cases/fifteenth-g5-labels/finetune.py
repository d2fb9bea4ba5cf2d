import json
import random

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, set_seed

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
MAX_LEN = 768
set_seed(17)

tok = AutoTokenizer.from_pretrained(MODEL)
assert tok.pad_token_id is not None


class QADataset(Dataset):
    def __init__(self, path):
        self.rows = [json.loads(x) for x in open(path, encoding="utf-8")]
        random.shuffle(self.rows)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        prompt = tok.apply_chat_template(
            [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
        )
        answer = row["answer"] + "<|im_end|>"
        answer_len = len(tok(answer, add_special_tokens=False)["input_ids"])

        enc = tok(
            prompt + answer,
            add_special_tokens=False,
            max_length=MAX_LEN,
            truncation=True,
            padding="max_length",
            return_tensors="pt",
        )
        input_ids = enc["input_ids"][0]
        labels = input_ids.clone()
        # only the answer is learned
        labels[:-answer_len] = -100
        return {"input_ids": input_ids, "attention_mask": enc["attention_mask"][0], "labels": labels}


def main():
    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
    model = get_peft_model(
        model,
        LoraConfig(
            r=16,
            lora_alpha=32,
            lora_dropout=0.05,
            task_type="CAUSAL_LM",
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        ),
    )
    model.print_trainable_parameters()

    args = TrainingArguments(
        output_dir="out-plants",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        num_train_epochs=3,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        logging_steps=10,
        save_strategy="epoch",
        report_to="none",
    )
    trainer = Trainer(model=model, args=args, train_dataset=QADataset("plants_qa.jsonl"), processing_class=tok)
    trainer.train()
    model.save_pretrained("out-plants/final")
    tok.save_pretrained("out-plants/final")


if __name__ == "__main__":
    main()
