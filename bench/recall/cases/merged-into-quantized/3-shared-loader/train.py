from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

from common import ADAPTER, load_base, load_tokenizer


def main():
    trainer = SFTTrainer(
        model=load_base(),
        args=SFTConfig(
            output_dir="out/notary",
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=16,
            gradient_checkpointing=True,
            max_length=2048,
            bf16=True,
            warmup_steps=20,
            logging_steps=5,
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=load_dataset("json", data_files="notary.jsonl", split="train"),
        processing_class=load_tokenizer(),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(ADAPTER)


if __name__ == "__main__":
    main()
