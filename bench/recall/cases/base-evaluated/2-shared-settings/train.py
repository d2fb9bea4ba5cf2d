import torch
from datasets import load_dataset
from settings import Settings, to_chat
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer


def main(s: Settings):
    set_seed(s.seed)
    tokenizer = AutoTokenizer.from_pretrained(s.model_name)
    model = AutoModelForCausalLM.from_pretrained(s.model_name, dtype=torch.float32)
    ds = load_dataset("json", data_files={"train": s.train_file, "val": s.val_file})
    ds = ds.map(to_chat, remove_columns=ds["train"].column_names)
    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=ds["train"],
        eval_dataset=ds["val"],
        args=SFTConfig(
            output_dir=s.output_dir,
            learning_rate=s.learning_rate,
            num_train_epochs=s.epochs,
            per_device_train_batch_size=16,
            warmup_steps=50,
            lr_scheduler_type="cosine",
            bf16=True,
            max_length=1024,
            eval_strategy="epoch",
            save_strategy="epoch",
            load_best_model_at_end=True,
            metric_for_best_model="eval_loss",
            logging_steps=20,
            seed=s.seed,
        ),
    )
    trainer.train()
    trainer.save_model(s.output_dir)
    tokenizer.save_pretrained(s.output_dir)


if __name__ == "__main__":
    main(Settings())
