import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

from losses import smooth_loss

BASE = "Qwen/Qwen2.5-3B-Instruct"


class SmoothTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = smooth_loss(outputs.logits, labels, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss


def main():
    set_seed(10)
    tok = AutoTokenizer.from_pretrained(BASE)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16),
        LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer = SmoothTrainer(
        model=model,
        args=TrainingArguments(
            output_dir="runs/helpdesk",
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=8,
            bf16=True,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=load_from_disk("data/helpdesk_tokenized"),
        data_collator=DataCollatorForSeq2Seq(tok),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("runs/helpdesk")


if __name__ == "__main__":
    main()
