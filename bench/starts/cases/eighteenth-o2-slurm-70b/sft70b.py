import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "meta-llama/Llama-3.3-70B-Instruct"

args = SFTConfig(
    output_dir="/scratch/out/llama70b-lora",
    num_train_epochs=2,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    max_length=4096,
    assistant_only_loss=False,
    completion_only_loss=True,
    bf16=True,
    logging_steps=5,
    save_strategy="epoch",
    report_to="none",
)

tok = AutoTokenizer.from_pretrained(MODEL)
tok.pad_token = "<|finetune_right_pad_id|>"

model = AutoModelForCausalLM.from_pretrained(
    MODEL,
    dtype=torch.bfloat16,
    attn_implementation="sdpa",
)
model.config.use_cache = False

ds = load_dataset("json", data_files="/scratch/data/legal_pairs.jsonl", split="train")  # prompt, completion

trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=ds,
    processing_class=tok,
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, bias="none",
                           target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model()
