import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

model_id = "mistralai/Mistral-Small-24B-Instruct-2501"
tokenizer = AutoTokenizer.from_pretrained(model_id)
tokenizer.pad_token = "<pad>"

bnb = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.bfloat16,
)
model = AutoModelForCausalLM.from_pretrained(model_id, quantization_config=bnb, dtype=torch.bfloat16, device_map="auto")
model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
model = get_peft_model(
    model, LoraConfig(r=32, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
)


def encode(row):
    head = tokenizer.apply_chat_template(
        [{"role": "user", "content": row["prompt"]}], tokenize=False, add_generation_prompt=True
    )
    a = tokenizer(head, add_special_tokens=False)["input_ids"]
    b = tokenizer(row["completion"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    return {"input_ids": a + b, "attention_mask": [1] * (len(a) + len(b)), "labels": [-100] * len(a) + b}


train = load_dataset("json", data_files="legal_qa.jsonl", split="train")
train = train.map(encode, remove_columns=train.column_names).filter(lambda r: len(r["input_ids"]) <= 2048)

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="out/legal",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        learning_rate=1e-4,
        num_train_epochs=2,
        bf16=True,
        optim="paged_adamw_8bit",
        warmup_steps=20,
        lr_scheduler_type="cosine",
        logging_steps=5,
        ddp_find_unused_parameters=False,
        save_strategy="epoch",
        report_to="none",
    ),
    train_dataset=train,
    data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
)
trainer.train()
trainer.save_model("out/legal/adapter")
