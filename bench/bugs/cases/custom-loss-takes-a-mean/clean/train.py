import torch.nn.functional as F
from datasets import load_from_disk
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

NAME = "Qwen/Qwen2.5-0.5B"


class SmoothTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].flatten(0, 1).float()
        loss = F.cross_entropy(
            logits, labels[:, 1:].flatten(), label_smoothing=0.1, reduction="sum"
        )
        loss = loss / num_items_in_batch
        return (loss, outputs) if return_outputs else loss


trainer = SmoothTrainer(
    model=AutoModelForCausalLM.from_pretrained(NAME),
    args=TrainingArguments(
        output_dir="out", learning_rate=1e-5, gradient_accumulation_steps=8, bf16=True
    ),
    train_dataset=load_from_disk("encoded"),
    data_collator=DataCollatorForSeq2Seq(AutoTokenizer.from_pretrained(NAME)),
)
trainer.train()
