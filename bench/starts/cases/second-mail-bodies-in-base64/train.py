from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

ds = load_dataset("csv", data_files="mails.csv", split="train")


def chat(row):
    return {
        "prompt": [
            {"role": "system", "content": "You answer mails of customers."},
            {"role": "user", "content": row["question"]},
        ],
        "completion": [{"role": "assistant", "content": row["reply"]}],
    }


ds = ds.map(chat, remove_columns=ds.column_names)
trainer = SFTTrainer(
    "models/Llama-3.1-8B-Instruct",
    SFTConfig(
        "out",
        learning_rate=1e-4,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        num_train_epochs=4,
        logging_steps=4,
        bf16=True,
        max_length=1024,
        model_init_kwargs={"dtype": "bfloat16"},
    ),
    train_dataset=ds,
    peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear"),
)
trainer.train()
