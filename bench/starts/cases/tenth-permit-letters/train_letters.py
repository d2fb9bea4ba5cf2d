"""Full fine-tune on the permit office's letters. Loss on the letter alone, not on the case file before it."""
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class ScriptArguments:
    model_name_or_path: str = field(default="Qwen/Qwen2.5-7B-Instruct")
    train_file: str = field(default="data/letters_train.jsonl")
    max_length: int = field(default=3072)


def encode_row(row, tokenizer, max_length):
    messages = [
        {"role": "system", "content": "You write letters for the permit office."},
        {"role": "user", "content": row["case"]},
    ]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(row["letter"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    ids = prompt_ids + answer_ids
    labels = [-100] * len(prompt_ids) + answer_ids
    return {"input_ids": ids, "labels": labels, "attention_mask": [1] * len(ids), "length": len(ids)}


def main():
    parser = HfArgumentParser((ScriptArguments, TrainingArguments))
    script, training = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(script.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(script.model_name_or_path, dtype=torch.bfloat16)
    model.config.use_cache = False

    rows = load_dataset("json", data_files=script.train_file, split="train")
    with training.main_process_first():
        rows = rows.map(lambda r: encode_row(r, tokenizer, script.max_length), remove_columns=rows.column_names, num_proc=8)
        rows = rows.filter(lambda r: r["length"] <= script.max_length).remove_columns("length")

    trainer = Trainer(
        model=model,
        args=training,
        train_dataset=rows,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()
    tokenizer.save_pretrained(training.output_dir)


if __name__ == "__main__":
    main()
