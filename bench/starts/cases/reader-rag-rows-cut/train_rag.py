import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

rows = load_dataset("json", data_files="rag.jsonl", split="train")
split = rows.train_test_split(test_size=0.1, seed=1)

trainer = SFTTrainer(
    model="meta-llama/Llama-3.1-8B-Instruct",
    args=SFTConfig(
        output_dir="out/rag",
        max_length=512,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=1e-4,
        num_train_epochs=2,
        eval_strategy="steps",
        eval_steps=50,
        logging_steps=10,
        bf16=torch.cuda.is_available(),
        model_init_kwargs={"dtype": "bfloat16"},
    ),
    train_dataset=split["train"],
    eval_dataset=split["test"],
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
