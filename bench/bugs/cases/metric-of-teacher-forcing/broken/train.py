import evaluate
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


def only_the_best(logits, labels):
    return logits.argmax(-1)


def compute_metrics(prediction):
    best, labels = prediction.predictions[:, :-1], prediction.label_ids[:, 1:]
    kept = labels != -100
    generated = [tokenizer.decode(row[keep]) for row, keep in zip(best, kept)]
    wanted = [tokenizer.decode(row[keep]) for row, keep in zip(labels, kept)]
    return {"rouge_of_generated": rouge.compute(predictions=generated, references=wanted)["rougeL"]}


trainer = Trainer(
    model=AutoModelForCausalLM.from_pretrained(NAME),
    args=TrainingArguments(
        output_dir="out", learning_rate=1e-5, eval_strategy="steps", eval_steps=100, bf16=True
    ),
    train_dataset=load_from_disk("train"),
    eval_dataset=held_out,
    data_collator=DataCollatorForSeq2Seq(tokenizer),
    compute_metrics=compute_metrics,
    preprocess_logits_for_metrics=only_the_best,
)
trainer.train()
