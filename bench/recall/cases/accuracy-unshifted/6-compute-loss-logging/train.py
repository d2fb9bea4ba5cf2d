import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, TrainingArguments

from logging_trainer import LoggingTrainer

NAME = "meta-llama/Llama-3.2-3B"


def main():
    tok = AutoTokenizer.from_pretrained(NAME)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=64, lora_alpha=128, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    )

    def encode(row):
        ids = tok(row["article"])["input_ids"][:2047] + [tok.eos_token_id]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": list(ids)}

    ds = load_dataset("json", data_files="data/encyclopedia.jsonl", split="train")
    ds = ds.map(encode, remove_columns=ds.column_names)
    trainer = LoggingTrainer(
        model=model,
        args=TrainingArguments(
            output_dir="out/encyclopedia",
            learning_rate=1e-4,
            num_train_epochs=1,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=8,
            warmup_steps=50,
            lr_scheduler_type="cosine",
            bf16=True,
            logging_steps=10,
            save_steps=500,
            report_to="none",
        ),
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
