from dataclasses import dataclass, field
from functools import partial

import evaluate
import numpy as np
import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq
from transformers import HfArgumentParser, Trainer, TrainingArguments

rouge = evaluate.load("rouge")


@dataclass
class Args:
    model_name: str = field(default="Qwen/Qwen2.5-3B-Instruct")
    data_dir: str = field(default="data/summaries_tokenized")
    lora_r: int = field(default=16)


def rouge_teacher_forced(pred, tokenizer):
    ids = np.argmax(pred.predictions, -1)[:, :-1]
    labels = pred.label_ids[:, 1:]
    guesses, truths = [], []
    for row_ids, row_labels in zip(ids, labels):
        keep = row_labels != -100
        guesses.append(tokenizer.decode(row_ids[keep], skip_special_tokens=True))
        truths.append(tokenizer.decode(row_labels[keep], skip_special_tokens=True))
    scores = rouge.compute(predictions=guesses, references=truths)
    return {k: round(float(v), 4) for k, v in scores.items()}


def main():
    args, targs = HfArgumentParser((Args, TrainingArguments)).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(args.model_name)
    model = AutoModelForCausalLM.from_pretrained(args.model_name, dtype=torch.bfloat16)
    config = LoraConfig(
        r=args.lora_r, lora_alpha=2 * args.lora_r, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    model = get_peft_model(model, config)
    ds = load_from_disk(args.data_dir)
    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=ds["train"],
        eval_dataset=ds["dev"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        processing_class=tokenizer,
        compute_metrics=partial(rouge_teacher_forced, tokenizer=tokenizer),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
