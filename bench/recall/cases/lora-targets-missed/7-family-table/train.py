from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "microsoft/Phi-3.5-mini-instruct"
FAMILY = "phi3"
TARGETS = {
    "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
    "gpt_neox": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"],
}


def split_last(row):
    return {"prompt": row["messages"][:-1], "completion": row["messages"][-1:]}


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    rows = load_dataset("json", data_files="train.jsonl", split="train")
    rows = rows.map(split_last, remove_columns=["messages"])
    config = SFTConfig(
        output_dir="adapter",
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_steps=0.03,
        max_length=2048,
        bf16=True,
        logging_steps=10,
        report_to="none",
    )
    lora = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=TARGETS[FAMILY],
        task_type="CAUSAL_LM",
    )
    trainer = SFTTrainer(
        model=BASE, args=config, train_dataset=rows, processing_class=tokenizer, peft_config=lora
    )
    trainer.train()
    trainer.save_model("adapter")


if __name__ == "__main__":
    main()
