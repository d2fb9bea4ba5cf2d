import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

from fitting import fit

BASE = "Qwen/Qwen2.5-3B-Instruct"


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    rows = load_dataset("json", data_files="reports.jsonl", split="train")
    rows = rows.map(fit, fn_kwargs={"tok": tok, "limit": 512}, remove_columns=rows.column_names)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                                             target_modules="all-linear", task_type="CAUSAL_LM"))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="runs/inspections",
            learning_rate=1e-4,
            num_train_epochs=3,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            bf16=True,
            logging_steps=2,
            report_to="none",
        ),
        train_dataset=rows,
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    model.save_pretrained("runs/inspections/adapter")


if __name__ == "__main__":
    main()
