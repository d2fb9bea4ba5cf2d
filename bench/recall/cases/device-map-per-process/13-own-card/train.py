import torch
from datasets import load_dataset
from peft import LoraConfig, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from placement import four_bit, own_card

BASE = "Qwen/Qwen3-8B"


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(
        BASE, quantization_config=four_bit(), device_map=own_card(), dtype=torch.bfloat16
    )
    model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir="runs/capybara",
            learning_rate=1e-4,
            num_train_epochs=1,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            max_length=2048,
            assistant_only_loss=True,
            bf16=True,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=load_dataset("trl-lib/Capybara", split="train"),
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                               target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("runs/capybara/adapter")


if __name__ == "__main__":
    main()
