import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

MODEL = "acme-ml/llama-3.2-3b-hh-sft"   # our SFT in the plain Human/Assistant format
DATA = "home_help_prefs.jsonl"           # same layout as Anthropic/hh-rlhf


def extract_prompt(dialog: str) -> str:
    """Everything up to and including the last '\n\nAssistant:'."""
    tag = "\n\nAssistant:"
    at = dialog.rfind(tag)
    assert at != -1, f"no assistant turn in {dialog!r}"
    return dialog[: at + len(tag)]


def split_dialog(row):
    prompt = extract_prompt(row["chosen"])
    return {
        "prompt": prompt,
        "chosen": row["chosen"],
        "rejected": row["rejected"],
    }


tokenizer = AutoTokenizer.from_pretrained(MODEL)
if tokenizer.pad_token is None:
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

raw = load_dataset("json", data_files=DATA, split="train")
pairs = raw.map(split_dialog, num_proc=4)
pairs = pairs.train_test_split(test_size=0.05, seed=0)
print(pairs)

model = AutoModelForCausalLM.from_pretrained(
    MODEL, dtype=torch.bfloat16, attn_implementation="sdpa"
)
model.config.use_cache = False

peft_config = LoraConfig(
    r=32,
    lora_alpha=64,
    lora_dropout=0.05,
    target_modules="all-linear",
    task_type="CAUSAL_LM",
)

args = DPOConfig(
    output_dir="out/home-help-dpo",
    beta=0.1,
    learning_rate=2e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    num_train_epochs=3,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=1,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    max_length=1024,
    loss_type=["sigmoid", "sft"],
    loss_weights=[1.0, 1.0],
    bf16=True,
    logging_steps=10,
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to="none",
)

trainer = DPOTrainer(
    model=model,
    args=args,
    train_dataset=pairs["train"],
    eval_dataset=pairs["test"],
    processing_class=tokenizer,
    peft_config=peft_config,
)
trainer.train()
trainer.save_model("out/home-help-dpo/final")
