"""SFT with a weight per row (old tickets count half). transformers 4.57."""
import torch
import torch.nn.functional as F
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

MODEL = "Qwen/Qwen2.5-3B-Instruct"
tokenizer = AutoTokenizer.from_pretrained(MODEL)


def encode(row):
    prompt = tokenizer.apply_chat_template(row["messages"][:-1], tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer = tokenizer(row["messages"][-1]["content"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer, "weight": row["weight"]}


def collate(rows):
    n = max(len(r["input_ids"]) for r in rows)
    return {
        "input_ids": torch.tensor([r["input_ids"] + [tokenizer.pad_token_id] * (n - len(r["input_ids"])) for r in rows]),
        "attention_mask": torch.tensor([[1] * len(r["input_ids"]) + [0] * (n - len(r["input_ids"])) for r in rows]),
        "labels": torch.tensor([r["labels"] + [-100] * (n - len(r["labels"])) for r in rows]),
        "weight": torch.tensor([r["weight"] for r in rows]),
    }


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        weight = inputs.pop("weight")
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].float()
        targets = labels[:, 1:]
        loss = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=-100, reduction="none")
        kept = (targets != -100).float() * weight[:, None]
        loss = (loss * kept).sum() / kept.sum()
        return (loss, outputs) if return_outputs else loss


def main():
    data = load_dataset("json", data_files="data/train.jsonl", split="train")
    data = data.map(encode, remove_columns=["messages"]).train_test_split(0.1, seed=1)

    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    args = TrainingArguments(
        output_dir="outputs/weighted",
        num_train_epochs=4,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=8,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        logging_steps=5,
        eval_strategy="epoch",
        prediction_loss_only=True,
        remove_unused_columns=False,
        report_to="none",
    )
    trainer = WeightedTrainer(
        model=model, args=args, train_dataset=data["train"], eval_dataset=data["test"], data_collator=collate
    )
    trainer.train()
    trainer.save_model("outputs/weighted")


if __name__ == "__main__":
    main()
