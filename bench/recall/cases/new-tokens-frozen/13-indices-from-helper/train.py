import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from vocab import extend

BASE = "meta-llama/Llama-3.2-3B-Instruct"


def to_messages(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": f"<tool>{row['call']}</tool>"}],
    }


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    extra = extend(tokenizer, model)

    rows = load_dataset("json", data_files="data/tool_calls.jsonl", split="train")
    rows = rows.map(to_messages, remove_columns=rows.column_names)
    lora = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
        **extra,
    )
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir="out/tools",
            learning_rate=1e-4,
            num_train_epochs=3,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            max_length=1024,
            bf16=True,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=lora,
    )
    trainer.train()
    trainer.save_model("out/tools")
    tokenizer.save_pretrained("out/tools")


if __name__ == "__main__":
    main()
