from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    rows = load_dataset("json", data_files="shop.jsonl", split="train").shuffle(seed=0)
    config = SFTConfig(
        output_dir="shop-adapter",
        dataset_text_field="question",
        max_length=1024,
        num_train_epochs=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        bf16=True,
        logging_steps=5,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=BASE,
        args=config,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("shop-adapter")


if __name__ == "__main__":
    main()
