from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

base = "mistralai/Mistral-7B-Instruct-v0.3"
tokenizer = AutoTokenizer.from_pretrained(base)

PROMPT = """Below is an instruction that describes a task. Write a response that appropriately completes the request.

### Instruction:
{}

### Response:
{}"""


def fmt(example):
    return {"text": PROMPT.format(example["instruction"], example["output"]) + tokenizer.eos_token}


dataset = load_dataset("json", data_files="data/instructions.json", split="train")
dataset = dataset.map(fmt, remove_columns=dataset.column_names)

trainer = SFTTrainer(
    model=base,
    train_dataset=dataset,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    args=SFTConfig(
        output_dir="mistral-alpaca",
        num_train_epochs=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        learning_rate=2e-4,
        max_length=1024,
        bf16=True,
        logging_steps=10,
        report_to="none",
    ),
)
trainer.train()
trainer.save_model("mistral-alpaca/final")
