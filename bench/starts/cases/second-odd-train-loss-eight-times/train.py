import torch
import torch.nn.functional as F
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

MODEL = "mistralai/Mistral-7B-v0.3"


class LabelSmoothedTrainer(Trainer):
    """a little smoothing over the answer tokens"""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].float()
        targets = labels[:, 1:]
        loss = F.cross_entropy(
            logits.reshape(-1, logits.size(-1)),
            targets.reshape(-1),
            ignore_index=-100,
            label_smoothing=0.02,
        )
        return (loss, outputs) if return_outputs else loss


def main():
    tok = AutoTokenizer.from_pretrained(MODEL)
    tok.pad_token = tok.unk_token
    model = AutoModelForCausalLM.from_pretrained(
        MODEL, torch_dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    ds = load_dataset("json", data_files={"train": "train.jsonl", "validation": "valid.jsonl"})

    def encode(row):
        p = tok(f"[INST] {row['question']} [/INST]")["input_ids"]
        a = tok(row["answer"], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
        return {
            "input_ids": p + a,
            "attention_mask": [1] * len(p + a),
            "labels": [-100] * len(p) + a,
        }

    ds = ds.map(encode, remove_columns=ds["train"].column_names)
    args = TrainingArguments(
        "out",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=8,
        per_device_eval_batch_size=4,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        num_train_epochs=2,
        bf16=True,
        gradient_checkpointing=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=80,
        save_steps=480,
        max_grad_norm=1.0,
        report_to="none",
    )
    trainer = LabelSmoothedTrainer(
        model,
        args,
        train_dataset=ds["train"],
        eval_dataset=ds["validation"],
        processing_class=tok,
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
    )
    trainer.train()
    trainer.save_model("out/final")


main()
