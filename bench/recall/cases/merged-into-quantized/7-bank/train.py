import gc

import torch
from datasets import load_dataset
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

BASE, ADAPTER, FULL = "Qwen/Qwen2.5-7B-Instruct", "out/bank/adapter", "out/bank/full"


def train(tok):
    bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    model = AutoModelForCausalLM.from_pretrained(
        BASE, quantization_config=bnb, dtype=torch.bfloat16, device_map={"": 0}
    )
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir="out/bank",
            learning_rate=2e-4,
            num_train_epochs=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=8,
            gradient_checkpointing=True,
            max_length=2048,
            bf16=True,
            optim="paged_adamw_8bit",
            warmup_steps=30,
            logging_steps=10,
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=load_dataset("json", data_files="bank_chats.jsonl", split="train"),
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(ADAPTER)


def merge(tok):
    base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cpu")
    model = PeftModel.from_pretrained(base, ADAPTER).merge_and_unload()
    model.save_pretrained(FULL)
    tok.save_pretrained(FULL)


if __name__ == "__main__":
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    train(tokenizer)
    gc.collect()
    torch.cuda.empty_cache()
    merge(tokenizer)
