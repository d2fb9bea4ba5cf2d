from dataclasses import dataclass

import torch
from datasets import load_dataset
from peft import LoraConfig, TaskType, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments


@dataclass
class Stage:
    name: str
    init: str
    data: str
    lr: float
    epochs: int


# general.json was trained in January; products.json goes on from it
STAGE = Stage(name="products", init="runs/general/adapter", data="data/products.json", lr=1e-4, epochs=2)


def tokenise(example, tok):
    head = tok.apply_chat_template(example["messages"][:-1], tokenize=False, add_generation_prompt=True)
    head_ids = tok(head, add_special_tokens=False)["input_ids"]
    tail_ids = tok(example["messages"][-1]["content"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    ids = (head_ids + tail_ids)[:2048]
    labels = ([-100] * len(head_ids) + tail_ids)[:2048]
    return {"input_ids": ids, "labels": labels, "attention_mask": [1] * len(ids)}


def prepare_model(stage: Stage):
    model = AutoModelForCausalLM.from_pretrained(stage.init, dtype=torch.bfloat16)
    cfg = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=32,
        lora_alpha=64,
        lora_dropout=0.05,
        target_modules=["q_proj", "v_proj", "k_proj", "o_proj", "up_proj", "down_proj", "gate_proj"],
    )
    model = get_peft_model(model, cfg)
    model.print_trainable_parameters()
    return model


def main():
    tok = AutoTokenizer.from_pretrained(STAGE.init)
    model = prepare_model(STAGE)
    ds = load_dataset("json", data_files=STAGE.data, split="train")
    ds = ds.map(tokenise, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)

    args = TrainingArguments(
        output_dir=f"runs/{STAGE.name}",
        learning_rate=STAGE.lr,
        num_train_epochs=STAGE.epochs,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        warmup_steps=25,
        lr_scheduler_type="cosine",
        bf16=True,
        logging_steps=10,
        save_strategy="epoch",
        report_to="none",
    )
    trainer = Trainer(model=model, args=args, train_dataset=ds, data_collator=DataCollatorForSeq2Seq(tok))
    trainer.train()
    model.save_pretrained(f"runs/{STAGE.name}/adapter")
    tok.save_pretrained(f"runs/{STAGE.name}/adapter")


if __name__ == "__main__":
    main()
