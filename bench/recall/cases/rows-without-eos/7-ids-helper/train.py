import torch
from datasets import load_dataset
from encode import encode
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments, set_seed

MODEL, OUT = "meta-llama/Llama-3.2-3B", "out/llama-instruct"


def main():
    set_seed(42)
    tok = AutoTokenizer.from_pretrained(MODEL, padding_side="right")
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    ds = load_dataset("json", data_files="data/instructions.json", split="train")
    ds = ds.train_test_split(test_size=0.05, seed=42)
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds["train"].column_names)
    ds = ds.filter(lambda r: any(x != -100 for x in r["labels"][:-1]))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=OUT,
            learning_rate=2e-4,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            warmup_steps=50,
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=10,
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(OUT)
    tok.save_pretrained(OUT)


if __name__ == "__main__":
    main()
