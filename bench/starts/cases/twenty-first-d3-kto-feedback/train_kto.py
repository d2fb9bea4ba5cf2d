import pandas as pd
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import KTOConfig, KTOTrainer

MODEL = "HuggingFaceTB/SmolLM2-1.7B-Instruct"


def load_feedback(path):
    df = pd.read_csv(path, dtype=str).dropna(subset=["question", "answer", "thumb"])
    df = df.drop_duplicates(["question", "answer"])
    return Dataset.from_list(
        [
            {
                "prompt": [{"role": "user", "content": r.question}],
                "completion": [{"role": "assistant", "content": r.answer}],
                "label": bool(r.thumb),
            }
            for r in df.itertuples()
        ]
    )


tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)

trainer = KTOTrainer(
    model=model,
    args=KTOConfig(
        output_dir="out/kto",
        beta=0.1,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=2,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        max_length=1024,
        bf16=True,
        logging_steps=5,
        save_strategy="epoch",
        report_to="none",
    ),
    train_dataset=load_feedback("feedback.csv").shuffle(seed=1),
    processing_class=tokenizer,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model()
