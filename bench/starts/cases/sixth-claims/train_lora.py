"""LoRA on Mistral 7B: damage reports to claim codes with a reason."""
import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

BASE = "mistralai/Mistral-7B-Instruct-v0.3"
OUT = "adapters/claims-0411"
MAX_LEN = 2048

tokenizer = AutoTokenizer.from_pretrained(BASE)
tokenizer.pad_token = tokenizer.unk_token


def encode(row):
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": row["report"]}],
        tokenize=True,
        add_generation_prompt=True,
        return_dict=False,
    )
    answer = tokenizer(row["decision"], add_special_tokens=False)["input_ids"]
    answer = answer + [tokenizer.eos_token_id]
    ids = (prompt + answer)[:MAX_LEN]
    labels = ([-100] * len(prompt) + answer)[:MAX_LEN]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def main():
    data = load_dataset("json", data_files={"train": "claims_train.jsonl", "test": "claims_test.jsonl"})
    data = data.map(encode, remove_columns=data["train"].column_names)

    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
    model.config.use_cache = False
    model.enable_input_require_grads()
    model = get_peft_model(
        model,
        LoraConfig(
            r=16,
            lora_alpha=32,
            lora_dropout=0.05,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            task_type="CAUSAL_LM",
        ),
    )
    model.print_trainable_parameters()

    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=OUT,
            num_train_epochs=3,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            learning_rate=1e-4,
            warmup_ratio=0.03,
            lr_scheduler_type="cosine",
            bf16=True,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            logging_steps=10,
            eval_strategy="epoch",
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=data["train"],
        eval_dataset=data["test"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100),
    )
    trainer.train()
    model.save_pretrained(OUT)
    tokenizer.save_pretrained(OUT)


if __name__ == "__main__":
    main()
