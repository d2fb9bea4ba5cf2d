"""Recipe assistant: LoRA on Llama-3.1-8B with transformers.Trainer (adapted from alpaca-lora)."""
import os
from typing import List

import fire
import torch
import transformers
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPT = (
    "Below is an instruction that describes a cooking task. Write a response that completes it.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:\n"
)


def train(
    base_model: str = "meta-llama/Llama-3.1-8B",
    data_path: str = "recipes_12k.json",
    output_dir: str = "./recipe-lora",
    batch_size: int = 64,
    micro_batch_size: int = 4,
    num_epochs: int = 3,
    learning_rate: float = 2e-4,
    cutoff_len: int = 1024,
    val_set_size: int = 400,
    lora_r: int = 16,
    lora_alpha: int = 32,
    lora_dropout: float = 0.05,
    lora_target_modules: List[str] = ["q_proj", "k_proj", "v_proj", "o_proj"],
):
    gradient_accumulation_steps = batch_size // micro_batch_size

    tokenizer = AutoTokenizer.from_pretrained(base_model)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    tokenizer.padding_side = "right"

    model = AutoModelForCausalLM.from_pretrained(base_model, dtype=torch.bfloat16, device_map={"": 0})

    def encode(row):
        prompt = PROMPT.format(instruction=row["instruction"])
        prompt_ids = tokenizer(prompt)["input_ids"]
        answer_ids = tokenizer(row["output"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        ids = (prompt_ids + answer_ids)[:cutoff_len]
        labels = ([-100] * len(prompt_ids) + answer_ids)[:cutoff_len]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    config = LoraConfig(
        r=lora_r,
        lora_alpha=lora_alpha,
        target_modules=lora_target_modules,
        lora_dropout=lora_dropout,
        bias="none",
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, config)
    model.print_trainable_parameters()

    data = load_dataset("json", data_files=data_path)["train"].train_test_split(test_size=val_set_size, seed=42)
    train_data = data["train"].shuffle(seed=42).map(encode, remove_columns=data["train"].column_names)
    val_data = data["test"].map(encode, remove_columns=data["test"].column_names)

    trainer = transformers.Trainer(
        model=model,
        train_dataset=train_data,
        eval_dataset=val_data,
        args=transformers.TrainingArguments(
            per_device_train_batch_size=micro_batch_size,
            gradient_accumulation_steps=gradient_accumulation_steps,
            warmup_steps=30,
            num_train_epochs=num_epochs,
            learning_rate=learning_rate,
            bf16=True,
            logging_steps=10,
            eval_strategy="steps",
            save_strategy="steps",
            eval_steps=100,
            save_steps=200,
            output_dir=output_dir,
            save_total_limit=2,
            report_to="none",
        ),
        data_collator=transformers.DataCollatorForSeq2Seq(
            tokenizer, pad_to_multiple_of=8, return_tensors="pt", padding=True
        ),
    )
    model.config.use_cache = False

    # save only the adapter, not the 16 GB of the base
    old_state_dict = model.state_dict
    model.state_dict = (
        lambda self, *_, **__: get_peft_model_state_dict(self, old_state_dict())
    ).__get__(model, type(model))

    trainer.train()
    model.save_pretrained(output_dir)
    tokenizer.save_pretrained(output_dir)
    print("saved to", os.path.abspath(output_dir))


if __name__ == "__main__":
    fire.Fire(train)
