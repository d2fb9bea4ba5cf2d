"""SFT with more weight on the numbers in an answer (Qwen2.5-1.5B-Instruct, transformers Trainer)."""
import torch
import torch.nn.functional as F
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
NUMBER_WEIGHT = 2.0


class WeightedTrainer(Trainer):
    def __init__(self, *args, number_ids=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.number_ids = torch.tensor(sorted(number_ids))

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1, :].float()
        targets = labels[:, 1:]
        per_token = F.cross_entropy(
            logits.reshape(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-100, reduction="none"
        )
        flat = targets.reshape(-1)
        weights = torch.ones_like(per_token)
        weights[torch.isin(flat, self.number_ids.to(flat.device))] = NUMBER_WEIGHT
        weights[flat == -100] = 0.0
        loss = (per_token * weights).sum() / weights.sum().clamp(min=1.0)
        return (loss, outputs) if return_outputs else loss


def encode(row, tokenizer):
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
    )
    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    ids = (prompt_ids + answer_ids)[:1024]
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": ([-100] * len(prompt_ids) + answer_ids)[:1024],
    }


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    data = load_dataset("json", data_files={"train": "train.jsonl", "validation": "dev.jsonl"})
    data = data.map(lambda r: encode(r, tokenizer), remove_columns=["question", "answer"])
    number_ids = {i for t, i in tokenizer.get_vocab().items() if t.strip("\u0120").isdigit()}

    args = TrainingArguments(
        output_dir="out/qwen-weighted",
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=8,
        num_train_epochs=3,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=25,
        report_to="none",
    )
    trainer = WeightedTrainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        processing_class=tokenizer,
        number_ids=number_ids,
    )
    trainer.train()


if __name__ == "__main__":
    main()
