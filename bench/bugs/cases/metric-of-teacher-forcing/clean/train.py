import evaluate
import torch
from datasets import load_from_disk
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

NAME = "Qwen/Qwen2.5-0.5B"
tokenizer = AutoTokenizer.from_pretrained(NAME)
rouge = evaluate.load("rouge")
held_out = load_from_disk("eval")


class Generating(Trainer):
    def evaluate(self, *given, **named):
        measured = super().evaluate(*given, **named)
        generated, wanted = [], []
        for row in held_out:
            start = next(i for i, label in enumerate(row["labels"]) if label != -100)
            prompt = torch.tensor([row["input_ids"][:start]], device=self.model.device)
            said = self.model.generate(prompt, max_new_tokens=128, do_sample=False)[0, start:]
            generated.append(tokenizer.decode(said, skip_special_tokens=True))
            wanted.append(tokenizer.decode(row["input_ids"][start:], skip_special_tokens=True))
        self.log(
            {
                "eval_rouge_of_generated": rouge.compute(predictions=generated, references=wanted)[
                    "rougeL"
                ]
            }
        )
        return measured


trainer = Generating(
    model=AutoModelForCausalLM.from_pretrained(NAME),
    args=TrainingArguments(
        output_dir="out", learning_rate=1e-5, eval_strategy="steps", eval_steps=100, bf16=True
    ),
    train_dataset=load_from_disk("train"),
    eval_dataset=held_out,
    data_collator=DataCollatorForSeq2Seq(tokenizer),
)
trainer.train()
