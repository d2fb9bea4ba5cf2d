from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

from common import MODEL, build, load_tokenizer

tok = load_tokenizer()
ds = load_dataset("json", data_files="tickets.jsonl", split="train")
ds = ds.map(
    lambda r: {"prompt": build(r["question"]), "completion": [{"role": "assistant", "content": r["answer"]}]},
    remove_columns=ds.column_names,
).train_test_split(test_size=0.05, seed=11)

args = SFTConfig(
    output_dir="out/tickets",
    num_train_epochs=3,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    max_length=1024,
    bf16=True,
    logging_steps=5,
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to="none",
)
trainer = SFTTrainer(MODEL, args=args, train_dataset=ds["train"], eval_dataset=ds["test"], processing_class=tok)
trainer.train()
trainer.save_model("out/tickets/final")
