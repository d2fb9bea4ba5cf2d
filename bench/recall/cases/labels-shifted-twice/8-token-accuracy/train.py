import numpy as np
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
tok = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="float32")
model.config.use_cache = False


def encode(row):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
    )
    prompt = tok(head, add_special_tokens=False)["input_ids"]
    answer = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    ids = (prompt + answer)[:1024]
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": ([-100] * len(prompt) + answer)[:1024],
    }


def best_token(logits, labels):
    return logits.argmax(dim=-1)


def compute_metrics(pred):
    preds, labels = pred.predictions, pred.label_ids
    preds = preds[:, :-1]
    labels = labels[:, 1:]
    keep = labels != -100
    return {"token_accuracy": float(np.mean(preds[keep] == labels[keep]))}


gsm = load_dataset("openai/gsm8k", "main")
train = gsm["train"].map(encode, remove_columns=gsm["train"].column_names)
valid = gsm["test"].select(range(200)).map(encode, remove_columns=gsm["test"].column_names)

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="out/gsm-qwen",
        learning_rate=1e-5,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        bf16=True,
        warmup_steps=40,
        lr_scheduler_type="cosine",
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=20,
        report_to="none",
    ),
    train_dataset=train,
    eval_dataset=valid,
    data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
    compute_metrics=compute_metrics,
    preprocess_logits_for_metrics=best_token,
    processing_class=tok,
)
trainer.train()
trainer.save_model("out/gsm-qwen/final")
