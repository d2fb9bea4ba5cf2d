import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig

from weighted_trainer import WeightedSFTTrainer

NAME = "Qwen/Qwen2.5-3B-Instruct"


def main():
    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    ds = load_dataset("json", data_files="data/cot.jsonl", split="train").select_columns(["prompt", "completion"])
    trainer = WeightedSFTTrainer(
        model=model,
        processing_class=tok,
        train_dataset=ds,
        answer_marker_id=tok.convert_tokens_to_ids("####"),
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
        args=SFTConfig(
            output_dir="out/cot",
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=1,
            max_length=1024,
            warmup_steps=20,
            bf16=True,
            logging_steps=10,
            report_to="none",
        ),
    )
    trainer.train()
    trainer.save_model("out/cot")


if __name__ == "__main__":
    main()
