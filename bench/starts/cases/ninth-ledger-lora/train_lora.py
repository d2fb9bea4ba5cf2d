# LoRA on Mistral 7B: booking text -> account code with one sentence of reason
# one RTX 4090 (24 GB), Ubuntu 22.04
import json

from datasets import Dataset
from peft import LoraConfig, TaskType, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

BASE = "mistralai/Mistral-7B-Instruct-v0.3"
MAX_LEN = 512
OUT = "out/ledger-lora"


def read(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


tokenizer = AutoTokenizer.from_pretrained(BASE)
tokenizer.pad_token = tokenizer.unk_token
tokenizer.padding_side = "right"


def encode(row):
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Which account? " + row["booking"]}], tokenize=False, add_generation_prompt=True
    )
    p = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    a = tokenizer(" " + row["account"] + ": " + row["reason"], add_special_tokens=False)["input_ids"]
    ids = (p + a)[: MAX_LEN - 1] + [tokenizer.eos_token_id]
    labels = ([-100] * len(p) + a)[: MAX_LEN - 1] + [tokenizer.eos_token_id]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


train = Dataset.from_list(read("data/bookings_train.jsonl")).map(encode, remove_columns=["booking", "account", "reason"])
valid = Dataset.from_list(read("data/bookings_valid.jsonl")).map(encode, remove_columns=["booking", "account", "reason"])

model = AutoModelForCausalLM.from_pretrained(BASE)
model.to("cuda")
model.config.use_cache = False
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.enable_input_require_grads()

model = get_peft_model(
    model,
    LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    ),
)
model.print_trainable_parameters()

args = TrainingArguments(
    output_dir=OUT,
    per_device_train_batch_size=1,
    per_device_eval_batch_size=1,
    gradient_accumulation_steps=16,
    num_train_epochs=3,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    bf16=True,
    logging_steps=10,
    eval_strategy="epoch",
    save_strategy="epoch",
    prediction_loss_only=True,
    report_to="none",
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=train,
    eval_dataset=valid,
    data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100),
)
trainer.train()
model.save_pretrained(OUT)
tokenizer.save_pretrained(OUT)
