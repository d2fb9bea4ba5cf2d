from callbacks import ShowReplies
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-3B-Instruct"
QUESTIONS = ["How do I cancel my plan?", "My router blinks red, what now?", "Can I move my number abroad?"]


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    rows = load_dataset("json", data_files="telecom.jsonl", split="train")
    config = SFTConfig(
        output_dir="telecom-runs", num_train_epochs=2, per_device_train_batch_size=4, gradient_accumulation_steps=4,
        learning_rate=1e-4, lr_scheduler_type="cosine", warmup_steps=0.03, max_length=2048, bf16=True,
        gradient_checkpointing=False, logging_steps=10, report_to="none",
    )
    trainer = SFTTrainer(
        model=BASE, args=config, train_dataset=rows, processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.1, target_modules="all-linear", task_type="CAUSAL_LM"),
        callbacks=[ShowReplies(tokenizer, QUESTIONS)],
    )
    trainer.train()
    trainer.save_model("telecom-adapter")


if __name__ == "__main__":
    main()
