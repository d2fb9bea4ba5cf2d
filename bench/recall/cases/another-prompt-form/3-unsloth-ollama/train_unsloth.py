import unsloth
from unsloth import FastLanguageModel
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

alpaca_prompt = """Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.

### Instruction:
{}

### Input:
{}

### Response:
{}"""

model, tokenizer = FastLanguageModel.from_pretrained("unsloth/mistral-7b-v0.3-bnb-4bit", max_seq_length=2048, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(
    model,
    r=16,
    lora_alpha=16,
    lora_dropout=0,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    use_gradient_checkpointing="unsloth",
    random_state=3407,
)
EOS = tokenizer.eos_token


def format_rows(examples):
    rows = zip(examples["instruction"], examples["input"], examples["output"])
    return {"text": [alpaca_prompt.format(i, x, o) + EOS for i, x, o in rows]}


ds = load_dataset("json", data_files="data/firmware_qa.jsonl", split="train")
ds = ds.map(format_rows, batched=True).train_test_split(test_size=0.05, seed=3407)

trainer = SFTTrainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    args=SFTConfig(
        output_dir="outputs",
        dataset_text_field="text",
        max_length=2048,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        warmup_steps=10,
        num_train_epochs=2,
        learning_rate=2e-4,
        bf16=True,
        optim="adamw_8bit",
        weight_decay=0.01,
        lr_scheduler_type="linear",
        eval_strategy="epoch",
        logging_steps=5,
        seed=3407,
    ),
)
trainer.train()
model.save_pretrained_gguf("firmware", tokenizer, quantization_method="q4_k_m")
