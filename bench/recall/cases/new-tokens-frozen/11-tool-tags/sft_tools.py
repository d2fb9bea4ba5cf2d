from dataclasses import dataclass

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class ToolArgs:
    base: str = "meta-llama/Llama-3.2-3B-Instruct"
    data: str = "data/tool_calls.jsonl"
    rank: int = 16


TAGS = ["<tool>", "</tool>", "<result>", "</result>"]


def to_messages(row):
    answer = f"<tool>{row['call']}</tool>"
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": answer}],
    }


def main():
    parser = HfArgumentParser((ToolArgs, SFTConfig))
    tool, cfg = parser.parse_args_into_dataclasses(
        args=[
            "--output_dir", "out/tools",
            "--learning_rate", "1e-4",
            "--num_train_epochs", "3",
            "--per_device_train_batch_size", "4",
            "--gradient_accumulation_steps", "4",
            "--max_length", "1024",
            "--bf16", "true",
            "--logging_steps", "10",
            "--report_to", "none",
        ]
    )
    tokenizer = AutoTokenizer.from_pretrained(tool.base)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    tokenizer.add_tokens(TAGS, special_tokens=True)

    model = AutoModelForCausalLM.from_pretrained(tool.base, dtype=torch.bfloat16)
    model.resize_token_embeddings(len(tokenizer))

    rows = load_dataset("json", data_files=tool.data, split="train")
    rows = rows.map(to_messages, remove_columns=rows.column_names)

    peft_config = LoraConfig(
        r=tool.rank,
        lora_alpha=2 * tool.rank,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(cfg.output_dir)
    tokenizer.save_pretrained(cfg.output_dir)


if __name__ == "__main__":
    main()
