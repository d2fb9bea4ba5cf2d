import torch
import torch.nn.functional as F
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

BASE = "Qwen/Qwen2.5-3B-Instruct"


class SmoothTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].float()
        loss = F.cross_entropy(
            logits.reshape(-1, logits.size(-1)),
            labels[:, 1:].reshape(-1),
            ignore_index=-100,
            label_smoothing=0.05,
        )
        return (loss, outputs) if return_outputs else loss


def encode(row, tok):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["prompt"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(head + row["response"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    return {"input_ids": b, "attention_mask": [1] * len(b), "labels": [-100] * len(a) + b[len(a):]}


def main():
    set_seed(10)
    tok = AutoTokenizer.from_pretrained(BASE)
    ds = load_dataset("json", data_files="data/helpdesk.jsonl", split="train")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16),
        LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer = SmoothTrainer(
        model=model,
        args=TrainingArguments(
            output_dir="runs/helpdesk",
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=8,
            bf16=True,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("runs/helpdesk")


if __name__ == "__main__":
    main()
