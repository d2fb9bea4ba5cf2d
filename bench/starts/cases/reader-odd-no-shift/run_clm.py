import numpy as np
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

checkpoint = "HuggingFaceTB/SmolLM2-360M"
tokenizer = AutoTokenizer.from_pretrained(checkpoint)
tokenizer.add_special_tokens({"pad_token": "<|pad|>"})
model = AutoModelForCausalLM.from_pretrained(checkpoint)
model.resize_token_embeddings(len(tokenizer))

recipes = load_dataset("csv", data_files="recipes.csv", split="train").train_test_split(
    test_size=0.1, seed=3
)
tokenized = recipes.map(
    lambda r: tokenizer(
        [t + tokenizer.eos_token for t in r["recipe_text"]], truncation=True, max_length=512
    ),
    batched=True,
    remove_columns=recipes["train"].column_names,
)


def keep_argmax(logits, labels):
    return logits.argmax(dim=-1)


def token_accuracy(eval_preds):
    guesses, targets = eval_preds
    known = targets != -100
    hits = (guesses == targets) & known
    return {"token_accuracy": float(np.sum(hits) / np.sum(known))}


trainer = Trainer(
    model=model,
    args=TrainingArguments(
        "recipes-lm",
        per_device_train_batch_size=8,
        learning_rate=5e-5,
        num_train_epochs=3,
        eval_strategy="epoch",
        bf16=True,
    ),
    train_dataset=tokenized["train"],
    eval_dataset=tokenized["test"],
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    compute_metrics=token_accuracy,
    preprocess_logits_for_metrics=keep_argmax,
)
trainer.train()
print(trainer.evaluate())
