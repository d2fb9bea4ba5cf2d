import sys

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import DataCollatorForCompletionOnlyLM, SFTConfig, SFTTrainer

model_id = "mistralai/Mistral-7B-v0.1"
train_file = sys.argv[1] if len(sys.argv) > 1 else "instructions.jsonl"

tokenizer = AutoTokenizer.from_pretrained(model_id)
tokenizer.pad_token = tokenizer.unk_token
tokenizer.padding_side = "right"

bnb = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_compute_dtype=torch.bfloat16,
    bnb_4bit_use_double_quant=True,
)
model = AutoModelForCausalLM.from_pretrained(
    model_id,
    quantization_config=bnb,
    torch_dtype=torch.bfloat16,
    device_map={"": 0},
)
model.config.use_cache = False

dataset = load_dataset("json", data_files=train_file, split="train")


def formatting_func(example):
    text = f"### Instruction:\n{example['instruction']}\n\n"
    if example["context"]:
        text += f"### Context:\n{example['context']}\n\n"
    text += f"### Response:\n{example['response']}"
    return text


response_template = "### Response:"
collator = DataCollatorForCompletionOnlyLM(response_template, tokenizer=tokenizer)

peft_config = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    bias="none",
    task_type="CAUSAL_LM",
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
)

args = SFTConfig(
    output_dir="out-mistral-instr",
    max_length=1024,
    packing=False,
    num_train_epochs=3,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    optim="paged_adamw_8bit",
    bf16=True,
    logging_steps=1,
    save_strategy="epoch",
    report_to="none",
)

trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=dataset,
    formatting_func=formatting_func,
    data_collator=collator,
    peft_config=peft_config,
    processing_class=tokenizer,
)
trainer.model.print_trainable_parameters()
trainer.train()
trainer.save_model()
