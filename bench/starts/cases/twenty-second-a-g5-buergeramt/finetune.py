from datasets import Dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

from prep import load_faq

MODEL = "Qwen/Qwen2.5-7B-Instruct"
SYSTEM = "Du bist der Assistent des Bürgeramts. Antworte kurz und sachlich."


def to_messages(row):
    return {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["frage"]},
            {"role": "assistant", "content": row["antwort"]},
        ]
    }


df = load_faq()
ds = Dataset.from_pandas(df, preserve_index=False).map(to_messages, remove_columns=["frage", "antwort"])

trainer = SFTTrainer(
    model=MODEL,
    processing_class=AutoTokenizer.from_pretrained(MODEL),
    train_dataset=ds,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    args=SFTConfig(
        output_dir="out/amt", num_train_epochs=4, learning_rate=1e-4, per_device_train_batch_size=4,
        gradient_accumulation_steps=4, bf16=True, max_length=768, warmup_ratio=0.05, lr_scheduler_type="cosine",
        logging_steps=5, save_strategy="epoch", report_to="none", model_init_kwargs={"torch_dtype": "bfloat16"},
    ),
)
trainer.train()
trainer.save_model("out/amt/adapter")
