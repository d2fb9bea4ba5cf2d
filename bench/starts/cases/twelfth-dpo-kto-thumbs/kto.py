# KTO on the thumbs from the intranet assistant (export of Q4)
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import KTOConfig, KTOTrainer

MODEL = "mistralai/Mistral-7B-Instruct-v0.3"

tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.pad_token = tokenizer.unk_token

model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2")
model.config.use_cache = False

raw = load_dataset("json", data_files="feedback_q4.jsonl", split="train")
print(raw)


def to_kto(row):
    return {
        "prompt": [{"role": "user", "content": row["question"].strip()}],
        "completion": [{"role": "assistant", "content": row["answer"].strip()}],
        "label": bool(row["helpful"]),
    }


train = raw.map(to_kto, remove_columns=raw.column_names).shuffle(seed=7)

peft_config = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    task_type="CAUSAL_LM",
)

args = KTOConfig(
    output_dir="kto-intranet",
    beta=0.1,
    desirable_weight=1.0,
    undesirable_weight=1.0,
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    num_train_epochs=4,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    max_length=1024,
    max_prompt_length=512,
    bf16=True,
    logging_steps=2,
    save_strategy="epoch",
    report_to="none",
)

trainer = KTOTrainer(
    model=model,
    args=args,
    train_dataset=train,
    processing_class=tokenizer,
    peft_config=peft_config,
)
trainer.train()
trainer.save_model("kto-intranet/final")
