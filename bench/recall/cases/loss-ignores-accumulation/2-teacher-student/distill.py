import argparse

import torch
import torch.nn.functional as F
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments


class DistillationTrainer(Trainer):
    def __init__(self, *args, teacher, temperature=2.0, alpha=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher.to(self.args.device).eval().requires_grad_(False)
        self.temperature, self.alpha = temperature, alpha

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        with torch.no_grad():
            t_logits = self.teacher(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
            ).logits
        keep = inputs["labels"][:, 1:] != -100
        size = min(outputs.logits.size(-1), t_logits.size(-1))
        s = outputs.logits[:, :-1, :size][keep].float() / self.temperature
        t = t_logits[:, :-1, :size][keep].float() / self.temperature
        kl = F.kl_div(s.log_softmax(-1), t.softmax(-1), reduction="batchmean") * self.temperature**2
        ce = outputs.loss
        loss = self.alpha * ce + (1.0 - self.alpha) * kl
        return (loss, outputs) if return_outputs else loss


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--student", default="Qwen/Qwen2.5-0.5B-Instruct")
    ap.add_argument("--teacher", default="Qwen/Qwen2.5-3B-Instruct")
    ap.add_argument("--data", default="prompts_answers.jsonl")
    ap.add_argument("--out", default="out/student")
    a = ap.parse_args()
    tok = AutoTokenizer.from_pretrained(a.student)

    def encode(row):
        head = tok.apply_chat_template(
            [{"role": "user", "content": row["prompt"]}], tokenize=False, add_generation_prompt=True
        )
        x = tok(head, add_special_tokens=False)["input_ids"]
        y = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": x + y, "attention_mask": [1] * len(x + y), "labels": [-100] * len(x) + y}

    ds = load_dataset("json", data_files=a.data, split="train")
    ds = ds.map(encode, remove_columns=ds.column_names).filter(lambda r: len(r["input_ids"]) <= 1024)
    trainer = DistillationTrainer(
        model=AutoModelForCausalLM.from_pretrained(a.student, dtype=torch.float32),
        teacher=AutoModelForCausalLM.from_pretrained(a.teacher, dtype=torch.bfloat16),
        args=TrainingArguments(
            output_dir=a.out,
            learning_rate=1e-5,
            num_train_epochs=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=16,
            bf16=True,
            warmup_steps=50,
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
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
