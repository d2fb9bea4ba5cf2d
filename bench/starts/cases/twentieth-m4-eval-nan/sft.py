import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen2.5-7B-Instruct"


def load(path):
    """context + question -> prompt/completion in conversational form"""

    def shape(row):
        return {
            "prompt": [
                {"role": "system", "content": "Answer from the passages. Cite the passage number."},
                {"role": "user", "content": f"{row['context']}\n\nQuestion: {row['question']}"},
            ],
            "completion": [{"role": "assistant", "content": row["answer"]}],
        }

    ds = load_dataset("json", data_files=path, split="train")
    return ds.map(shape, remove_columns=ds.column_names)


args = SFTConfig(
    output_dir="outputs/rag-qwen",
    model_init_kwargs={"dtype": torch.bfloat16},
    max_length=1024,
    packing=False,
    completion_only_loss=True,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=1,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    num_train_epochs=3,
    bf16=True,
    logging_steps=5,
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to="none",
)
trainer = SFTTrainer(
    model=MODEL,
    args=args,
    train_dataset=load("train.jsonl"),
    eval_dataset=load("eval.jsonl"),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model()
