import sys

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def main(data, out):
    base = "Qwen/Qwen2.5-7B-Instruct"
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(base, dtype="bfloat16"),
        args=SFTConfig(
            output_dir=out,
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            max_length=2048,
            bf16=True,
            warmup_steps=20,
            logging_steps=10,
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=load_dataset("json", data_files=data, split="train"),
        processing_class=AutoTokenizer.from_pretrained(base),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main(*sys.argv[1:3])
