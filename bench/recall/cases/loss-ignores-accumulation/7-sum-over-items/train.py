import torch
import torch.nn.functional as F
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

NAME = "Qwen/Qwen2.5-1.5B-Instruct"
tok = AutoTokenizer.from_pretrained(NAME)
END = tok.convert_tokens_to_ids("<|im_end|>")


def reduce(per_token, weight, num_items):
    total = (per_token * weight).sum()
    return total / (weight.sum() if num_items is None else num_items)


class EndWeightTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"][:, 1:]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        per_token = F.cross_entropy(
            outputs.logits[:, :-1].float().transpose(1, 2), labels, ignore_index=-100, reduction="none"
        )
        weight = (labels != -100).float() + (labels == END).float()
        loss = reduce(per_token, weight, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss


def encode(row):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}


if __name__ == "__main__":
    ds = load_dataset("openai/gsm8k", "main", split="train")
    ds = ds.map(encode, remove_columns=ds.column_names)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    trainer = EndWeightTrainer(
        model=model,
        args=TrainingArguments(
            output_dir="out/gsm",
            learning_rate=2e-4,
            num_train_epochs=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=8,
            bf16=True,
            warmup_steps=30,
            logging_steps=10,
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("out/gsm/adapter")
