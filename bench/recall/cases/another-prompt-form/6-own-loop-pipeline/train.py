import torch
from dataset import QADataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

BASE = "Qwen/Qwen2.5-0.5B-Instruct"


def main():
    set_seed(9)
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            "out/geology",
            learning_rate=1e-5,
            num_train_epochs=3,
            per_device_train_batch_size=16,
            warmup_steps=60,
            lr_scheduler_type="cosine",
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            load_best_model_at_end=True,
            metric_for_best_model="eval_loss",
            save_total_limit=2,
            logging_steps=20,
        ),
        train_dataset=QADataset("data/train.jsonl", tok),
        eval_dataset=QADataset("data/valid.jsonl", tok),
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("out/geology")


if __name__ == "__main__":
    main()
