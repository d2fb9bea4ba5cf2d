from dataclasses import dataclass, field

from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class Extra:
    model_name: str = field(default="Qwen/Qwen2.5-3B-Instruct")
    data_file: str = field(default="data/summaries.jsonl")
    rank: int = field(default=16)


def main():
    extra, args = HfArgumentParser((Extra, TrainingArguments)).parse_args_into_dataclasses()
    tok = AutoTokenizer.from_pretrained(extra.model_name)
    model = AutoModelForCausalLM.from_pretrained(extra.model_name, dtype="bfloat16")
    model = get_peft_model(
        model,
        LoraConfig(r=extra.rank, lora_alpha=2 * extra.rank, target_modules="all-linear", task_type="CAUSAL_LM"),
    )

    def encode(row):
        head = tok.apply_chat_template(
            [{"role": "user", "content": "Summarize:\n" + row["article"]}], tokenize=False, add_generation_prompt=True
        )
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(row["summary"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}

    ds = load_dataset("json", data_files=extra.data_file, split="train")
    ds = ds.map(encode, remove_columns=ds.column_names).filter(lambda r: len(r["input_ids"]) <= 3072)
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
