import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

# V100 node, so no bf16
MODEL = "google/gemma-2-9b-it"
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(
    MODEL, torch_dtype=torch.float16, attn_implementation="eager", device_map={"": 0}
)

train = load_dataset("json", data_files="data/train.jsonl", split="train")

config = SFTConfig(
    output_dir="outputs/gemma2-clauses",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=8,
    learning_rate=1e-4,
    num_train_epochs=2,
    warmup_steps=20,
    lr_scheduler_type="linear",
    fp16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    logging_steps=5,
    max_length=2048,
    report_to="tensorboard",
    seed=17,
)
trainer = SFTTrainer(
    model,
    config,
    train_dataset=train,
    processing_class=tokenizer,
    peft_config=LoraConfig(
        r=16, lora_alpha=16, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    ),
)
trainer.train()
trainer.save_model()
