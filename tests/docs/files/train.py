from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from truetune.collate import PaddingCollator

tokenizer = AutoTokenizer.from_pretrained("path/to/model")
model = AutoModelForCausalLM.from_pretrained("path/to/model")
rows = load_dataset("parquet", data_files="encoded/data/*.parquet", split="train")
trainer = Trainer(
    model,
    TrainingArguments(
        "out", max_steps=4, per_device_train_batch_size=4, logging_steps=1, save_strategy="no", report_to="none",
        remove_unused_columns=False,
    ),
    train_dataset=rows,
    data_collator=PaddingCollator.of(tokenizer),
    processing_class=tokenizer,
)  # fmt: skip
trainer.train()
