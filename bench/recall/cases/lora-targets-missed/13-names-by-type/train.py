import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

from targets import targets

NAME = "EleutherAI/pythia-1.4b"


def encode(row, tok):
    p = tok(f"Question: {row['question']}\nAnswer:")["input_ids"]
    a = tok(" " + row["answer"], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


def main():
    tok = AutoTokenizer.from_pretrained(NAME, padding_side="right")
    tok.pad_token = tok.eos_token
    ds = load_dataset("openai/gsm8k", "main")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds["train"].column_names)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                                             target_modules=targets(model.config), task_type="CAUSAL_LM"))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="runs/pythia-gsm8k",
            learning_rate=2e-4,
            num_train_epochs=3,
            per_device_train_batch_size=8,
            warmup_steps=30,
            bf16=True,
            eval_strategy="epoch",
            logging_steps=20,
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("runs/pythia-gsm8k/adapter")


if __name__ == "__main__":
    main()
