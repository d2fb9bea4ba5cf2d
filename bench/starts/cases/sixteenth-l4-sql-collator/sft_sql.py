# text-to-sql qlora  (trl 0.15.2, transformers 4.49.0, peft 0.14.0)
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import DataCollatorForCompletionOnlyLM, SFTConfig, SFTTrainer

model_id = "codellama/CodeLlama-7b-hf"

bnb = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_compute_dtype=torch.bfloat16,
    bnb_4bit_use_double_quant=True,
)
model = AutoModelForCausalLM.from_pretrained(model_id, quantization_config=bnb, device_map={"": 0})
model.config.use_cache = False

tokenizer = AutoTokenizer.from_pretrained(model_id)
tokenizer.pad_token = tokenizer.unk_token
tokenizer.padding_side = "right"

dataset = load_dataset("b-mc2/sql-create-context", split="train").shuffle(seed=42).select(range(12000))


def formatting_prompts_func(examples):
    out = []
    for q, c, a in zip(examples["question"], examples["context"], examples["answer"]):
        out.append(
            "You are given a database schema and a question. Write one SQL query that answers it.\n\n"
            f"### Schema:\n{c}\n\n### Question:\n{q}\n\n### SQL:\n{a}{tokenizer.eos_token}"
        )
    return out


response_template = "### Response:\n"
response_ids = tokenizer.encode("\n" + response_template, add_special_tokens=False)[2:]
collator = DataCollatorForCompletionOnlyLM(response_ids, tokenizer=tokenizer)

peft_config = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    bias="none",
    target_modules="all-linear",
    task_type="CAUSAL_LM",
)

args = SFTConfig(
    output_dir="codellama-sql",
    num_train_epochs=1,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    optim="paged_adamw_8bit",
    learning_rate=2e-4,
    lr_scheduler_type="constant_with_warmup",
    warmup_ratio=0.03,
    bf16=True,
    max_seq_length=1024,
    packing=False,
    logging_steps=10,
    save_strategy="epoch",
    report_to="tensorboard",
)

trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=dataset,
    peft_config=peft_config,
    processing_class=tokenizer,
    formatting_func=formatting_prompts_func,
    data_collator=collator,
)
trainer.train()
trainer.save_model()
