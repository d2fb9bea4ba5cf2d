from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL_DIR = "base"

quiz = load_dataset("json", data_files="quiz.jsonl", split="train").shuffle(seed=3)
tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)

config = SFTConfig(
    output_dir="runs/geography",
    dataset_text_field="question",
    max_length=512,
    per_device_train_batch_size=4,
    num_train_epochs=5,
    learning_rate=2e-4,
    logging_steps=5,
    save_strategy="epoch",
    bf16=False,
    report_to="none",
)
trainer = SFTTrainer(
    model=MODEL_DIR,
    args=config,
    train_dataset=quiz,
    processing_class=tokenizer,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("geography-adapter")
