from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, HfArgumentParser, Trainer,
                          TrainingArguments)


@dataclass
class Args:
    model: str = "Qwen/Qwen2.5-3B-Instruct"
    data: str = "data/sql_pairs.jsonl"
    out: str = "outputs/sql-weighted"
    max_len: int = 1536
    keyword_weight: float = 2.0
    keywords: list[str] = field(default_factory=lambda: ["JOIN", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT"])


class WeightedTrainer(Trainer):
    """Cross-entropy in which SQL keywords count more."""

    def __init__(self, *args, token_weights=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.token_weights = token_weights

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].float()
        target = labels[:, 1:]
        weights = self.token_weights.to(logits.device)
        loss = F.cross_entropy(
            logits.reshape(-1, logits.size(-1)), target.reshape(-1), weight=weights, ignore_index=-100
        )
        return (loss, outputs) if return_outputs else loss


def main():
    (cfg,) = HfArgumentParser(Args).parse_args_into_dataclasses()
    tok = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForCausalLM.from_pretrained(cfg.model, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    weights = torch.ones(model.config.vocab_size)
    for word in cfg.keywords:
        for form in (word, " " + word):
            ids = tok.encode(form, add_special_tokens=False)
            weights[ids[0]] = cfg.keyword_weight

    def encode(row):
        messages = [{"role": "system", "content": "You write SQLite queries.\n" + row["schema"]},
                    {"role": "user", "content": row["question"]},
                    {"role": "assistant", "content": row["sql"]}]
        prompt = tok.apply_chat_template(messages[:-1], add_generation_prompt=True, return_dict=False)
        ids = tok.apply_chat_template(messages, return_dict=False)
        return {"input_ids": ids, "labels": [-100] * len(prompt) + ids[len(prompt):], "attention_mask": [1] * len(ids)}

    raw = load_dataset("json", data_files=cfg.data, split="train").train_test_split(test_size=0.04, seed=11)
    data = raw.map(encode, remove_columns=raw["train"].column_names)
    data = data.filter(lambda r: len(r["input_ids"]) <= cfg.max_len)

    trainer = WeightedTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=cfg.out,
            per_device_train_batch_size=2,
            per_device_eval_batch_size=4,
            gradient_accumulation_steps=16,
            learning_rate=2e-4,
            lr_scheduler_type="cosine",
            warmup_steps=15,
            num_train_epochs=2,
            bf16=True,
            logging_steps=10,
            eval_strategy="steps",
            eval_steps=50,
            save_steps=100,
            report_to="none",
        ),
        train_dataset=data["train"],
        eval_dataset=data["test"],
        data_collator=DataCollatorForSeq2Seq(tok, padding="longest"),
        token_weights=weights,
    )
    trainer.train()
    trainer.save_model(cfg.out)


if __name__ == "__main__":
    main()
