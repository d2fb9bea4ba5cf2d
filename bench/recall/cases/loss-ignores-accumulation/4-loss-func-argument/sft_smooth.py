import torch
import torch.nn.functional as F
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

BASE = "Qwen/Qwen2.5-3B-Instruct"
SMOOTHING = 0.05


def smoothed(outputs, labels, num_items_in_batch=None):
    logits = outputs.logits[:, :-1].float()
    target = labels[:, 1:].to(logits.device)
    return F.cross_entropy(
        logits.reshape(-1, logits.size(-1)), target.reshape(-1), ignore_index=-100, label_smoothing=SMOOTHING
    )


def dataset(tok):
    def encode(row):
        head = tok.apply_chat_template(
            [{"role": "user", "content": row["instruction"]}], tokenize=False, add_generation_prompt=True
        )
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(row["response"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}

    ds = load_dataset("json", data_files="dolly_clean.jsonl", split="train")
    ds = ds.map(encode, remove_columns=ds.column_names)
    return ds.filter(lambda r: len(r["input_ids"]) <= 1536).train_test_split(test_size=0.02, seed=0)


if __name__ == "__main__":
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    data = dataset(tok)
    args = TrainingArguments(
        output_dir="out/dolly",
        learning_rate=1e-4,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        bf16=True,
        warmup_steps=30,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        compute_loss_func=smoothed,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("out/dolly/adapter")
