import torch
import torch.nn.functional as F
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, TrainingArguments

from base import MeanLossTrainer


class LogitTrainer(MeanLossTrainer):
    def __init__(self, *args, teacher, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher.to(self.args.device).eval().requires_grad_(False)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        out = model(**inputs)
        with torch.no_grad():
            t = self.teacher(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        keep = inputs["labels"][:, 1:] != -100
        n = min(t.size(-1), out.logits.size(-1))
        s_lp = out.logits[:, :-1, :n][keep].float().log_softmax(-1)
        t_p = t[:, :-1, :n][keep].float().softmax(-1)
        loss = 0.5 * out.loss + 0.5 * F.kl_div(s_lp, t_p, reduction="batchmean")
        return (loss, out) if return_outputs else loss


if __name__ == "__main__":
    tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")

    def encode(row):
        head = tok.apply_chat_template(
            [{"role": "user", "content": row["prompt"]}], tokenize=False, add_generation_prompt=True
        )
        x = tok(head, add_special_tokens=False)["input_ids"]
        y = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": x + y, "attention_mask": [1] * len(x + y), "labels": [-100] * len(x) + y}

    ds = load_dataset("json", data_files="prompts.jsonl", split="train")
    ds = ds.map(encode, remove_columns=ds.column_names)
    trainer = LogitTrainer(
        model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct", dtype=torch.float32),
        teacher=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B-Instruct", dtype=torch.bfloat16),
        args=TrainingArguments(
            output_dir="out/student",
            learning_rate=1e-5,
            num_train_epochs=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=16,
            bf16=True,
            warmup_steps=40,
            logging_steps=10,
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("out/student/final")
