import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

from encode import encode

BASE = "Qwen/Qwen2.5-1.5B"


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    ds = load_dataset("json", data_files="replies.jsonl", split="train")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    ds = ds.filter(lambda r: len(r["input_ids"]) <= 1024)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                                             target_modules="all-linear", task_type="CAUSAL_LM"))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="runs/replies",
            learning_rate=1e-4,
            num_train_epochs=3,
            per_device_train_batch_size=8,
            warmup_steps=20,
            bf16=True,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    model.save_pretrained("runs/replies/adapter")
    tok.save_pretrained("runs/replies/adapter")


if __name__ == "__main__":
    main()
