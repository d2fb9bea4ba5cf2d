import torch
import torch.nn.functional as F
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

NAME = "Qwen/Qwen2.5-1.5B-Instruct"
tok = AutoTokenizer.from_pretrained(NAME)
DIGITS = torch.tensor([i for t, i in tok.get_vocab().items() if t.strip("Ġ").isdigit()])


class NumberTrainer(Trainer):
    """Digits of the answer count three times as much as other tokens."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].float()
        target = labels[:, 1:]
        per_token = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=-100, reduction="none")
        weight = (target != -100).float()
        weight = torch.where(torch.isin(target, DIGITS.to(target.device)), 3.0 * weight, weight)
        loss = (per_token * weight).sum() / weight.sum()
        return (loss, outputs) if return_outputs else loss


def encode(row):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}


def main():
    ds = load_dataset("openai/gsm8k", "main", split="train")
    ds = ds.map(encode, remove_columns=ds.column_names)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    trainer = NumberTrainer(
        model=model,
        args=TrainingArguments(
            output_dir="out/numbers",
            learning_rate=2e-4,
            num_train_epochs=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=8,
            bf16=True,
            warmup_steps=30,
            lr_scheduler_type="cosine",
            logging_steps=10,
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("out/numbers/adapter")


if __name__ == "__main__":
    main()
