"""Second stage for the claims desk: DPO on top of the SFT adapter (adapters/claims-sft)."""
import torch
from datasets import load_dataset
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "mistralai/Mistral-7B-v0.3"
SFT = "adapters/claims-sft"
OUT = "adapters/claims-dpo"


def sft_model():
    """The base with the SFT adapter merged in: the policy starts there, and it is the reference as well."""
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
    model = PeftModel.from_pretrained(model, SFT)
    return model.merge_and_unload()


def main():
    tokenizer = AutoTokenizer.from_pretrained(SFT)
    model = sft_model()
    pairs = load_dataset("json", data_files="data/claims_pairs.jsonl", split="train").train_test_split(test_size=0.05, seed=9)

    args = DPOConfig(
        output_dir=OUT,
        beta=0.1,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        max_length=2048,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="no",
        report_to="none",
    )
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    # ref_model=None: with peft_config the reference is the model without the new adapter, that is the SFT model
    trainer = DPOTrainer(
        model=model,
        ref_model=None,
        args=args,
        train_dataset=pairs["train"],
        eval_dataset=pairs["test"],
        processing_class=tokenizer,
        peft_config=lora,
    )
    trainer.train()
    trainer.save_model(OUT)
    tokenizer.save_pretrained(OUT)


if __name__ == "__main__":
    main()
