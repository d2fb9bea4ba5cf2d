"""LoRA on Llama-3.1-8B-Instruct; tokens of the final verdict count twice in the loss."""
import torch
import torch.nn.functional as F
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

BASE = "meta-llama/Llama-3.1-8B-Instruct"
VERDICT_WEIGHT = 2.0


class Collator:
    """Pads ids, labels and weights of rows that were encoded by encode_rows.py."""

    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)

        def pad(key, value, dtype):
            return torch.tensor([r[key] + [value] * (width - len(r[key])) for r in rows], dtype=dtype)

        return {
            "input_ids": pad("input_ids", self.pad_id, torch.long),
            "attention_mask": pad("attention_mask", 0, torch.long),
            "labels": pad("labels", -100, torch.long),
            "verdict": pad("verdict", 0, torch.float),
        }


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        verdict = inputs.pop("verdict")
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].float()
        target = labels[:, 1:]
        weight = 1.0 + (VERDICT_WEIGHT - 1.0) * verdict[:, 1:]
        token_loss = F.cross_entropy(
            logits.reshape(-1, logits.size(-1)), target.reshape(-1), ignore_index=-100, reduction="none"
        ).view_as(target)
        weight = weight * (target != -100)
        loss = (token_loss * weight).sum() / weight.sum().clamp(min=1.0)
        outputs = {"loss": loss, "logits": outputs.logits}
        return (loss, outputs) if return_outputs else loss


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16)
    model.config.use_cache = False
    model.enable_input_require_grads()
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    data = load_from_disk("encoded")
    args = TrainingArguments(
        output_dir="out/verdicts",
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        num_train_epochs=2,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=50,
        prediction_loss_only=True,
        remove_unused_columns=False,
        label_names=["labels"],
        report_to="none",
    )
    trainer = WeightedTrainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["dev"],
        data_collator=Collator(tokenizer.convert_tokens_to_ids("<|finetune_right_pad_id|>")),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
