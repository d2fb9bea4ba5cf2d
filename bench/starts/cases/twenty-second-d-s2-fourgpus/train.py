import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from settings import Settings


def build_model(s: Settings):
    return AutoModelForCausalLM.from_pretrained(
        s.base, dtype=torch.bfloat16, attn_implementation="flash_attention_2", **s.load_kwargs
    )


def main():
    s = Settings()
    tokenizer = AutoTokenizer.from_pretrained(s.base)
    data = load_dataset("json", data_files=s.data, split="train")
    trainer = SFTTrainer(
        model=build_model(s),
        processing_class=tokenizer,
        train_dataset=data,
        peft_config=LoraConfig(
            r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        args=SFTConfig(
            output_dir=s.out,
            max_length=4096,
            assistant_only_loss=False,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=8,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            learning_rate=1e-4,
            lr_scheduler_type="cosine",
            warmup_ratio=0.03,
            num_train_epochs=3,
            bf16=True,
            logging_steps=10,
            save_strategy="epoch",
            dataloader_num_workers=4,
            report_to="none",
        ),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
