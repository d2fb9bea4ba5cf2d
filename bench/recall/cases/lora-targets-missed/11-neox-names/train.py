import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)


def encode(row, tok):
    p = tok(f"Question: {row['question']}\nAnswer:")["input_ids"]
    a = tok(" " + row["answer"], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


def add_lora(model, rank):
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.05,
        target_modules=["q_proj", "v_proj"],
        bias="none",
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, config)
    model.print_trainable_parameters()
    return model


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="EleutherAI/pythia-1.4b")
    ap.add_argument("--rank", type=int, default=16)
    ap.add_argument("--out", default="runs/pythia-gsm8k")
    args = ap.parse_args()
    set_seed(12)
    tok = AutoTokenizer.from_pretrained(args.model, padding_side="right")
    tok.pad_token = tok.eos_token
    ds = load_dataset("openai/gsm8k", "main")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds["train"].column_names)
    model = add_lora(AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16), args.rank)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.out,
            learning_rate=2e-4,
            num_train_epochs=3,
            per_device_train_batch_size=8,
            warmup_steps=30,
            lr_scheduler_type="cosine",
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=20,
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(args.out + "/adapter")


if __name__ == "__main__":
    main()
