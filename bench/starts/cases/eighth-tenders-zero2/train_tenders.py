# Full fine-tune of Qwen2.5-7B on tender summaries, 4x A100 80GB
# deepspeed --num_gpus 4 train_tenders.py --deepspeed ds_zero2.json  (see launch.sh)
import json
from dataclasses import dataclass, field

import torch
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class ScriptArguments:
    model: str = "Qwen/Qwen2.5-7B-Instruct"
    train_file: str = "data/tenders_train.jsonl"
    max_length: int = 3072


SYSTEM = "You summarise public tenders for a small construction firm. Name the deadline, the sum and what is excluded."


def load_rows(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(x) for x in f]


def encode(row, tok, max_length):
    head = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["tender"]}]
    prompt = tok.apply_chat_template(head, tokenize=False, add_generation_prompt=True)
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    a = tok(row["summary"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    ids = p + a
    labels = [-100] * len(p) + a
    return {"input_ids": ids[:max_length], "labels": labels[:max_length], "attention_mask": [1] * min(len(ids), max_length)}


def main():
    parser = HfArgumentParser((ScriptArguments, TrainingArguments))
    script, args = parser.parse_args_into_dataclasses()
    set_seed(args.seed)

    tok = AutoTokenizer.from_pretrained(script.model)
    model = AutoModelForCausalLM.from_pretrained(script.model, dtype=torch.bfloat16, attn_implementation="flash_attention_2")
    model.config.use_cache = False

    rows = load_rows(script.train_file)
    ds = Dataset.from_list(rows).map(lambda r: encode(r, tok, script.max_length), remove_columns=["tender", "summary"])
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    model.config.use_cache = True
    trainer.save_model(args.output_dir)
    tok.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
