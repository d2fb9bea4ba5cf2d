from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

NAME = "Qwen/Qwen2.5-0.5B-Instruct"

tokenizer = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME, dtype="bfloat16")
rows = load_dataset("json", data_files="chats.jsonl", split="train")

args = SFTConfig(
    output_dir="out",
    max_length=4096,
    learning_rate=2e-4,
    num_train_epochs=2,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    bf16=True,
    eval_strategy="steps",
    eval_steps=50,
    save_steps=50,
    load_best_model_at_end=True,
    metric_for_best_model="eval_mean_token_accuracy",
    greater_is_better=False,
    assistant_only_loss=True,
)
lora = LoraConfig(
    r=16,
    lora_alpha=32,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    task_type="CAUSAL_LM",
)
trainer = SFTTrainer(
    model=model, args=args, train_dataset=rows, processing_class=tokenizer, peft_config=lora
)
trainer.train()
trainer.save_model("out/final")
