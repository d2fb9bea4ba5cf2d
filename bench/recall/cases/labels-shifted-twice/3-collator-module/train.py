import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments

from collate import AnswerOnlyCollator

BASE = "Qwen/Qwen2.5-3B-Instruct"


def encode(row, tok):
    prompt = tok.apply_chat_template(
        [{"role": "user", "content": row["instruction"]}], tokenize=False, add_generation_prompt=True
    )
    prompt_ids = tok(prompt, add_special_tokens=False)["input_ids"]
    answer_ids = tok(row["response"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": (prompt_ids + answer_ids)[:2048], "prompt_len": len(prompt_ids)}


def main():
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    args.remove_unused_columns = False
    tok = AutoTokenizer.from_pretrained(BASE)
    ds = load_dataset("json", data_files="tickets.jsonl", split="train")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    ds = ds.filter(lambda r: r["prompt_len"] < 1800)

    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(
        model,
        LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    model.print_trainable_parameters()
    trainer = Trainer(
        model=model, args=args, train_dataset=ds, data_collator=AnswerOnlyCollator(tok), processing_class=tok
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
