from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "meta-llama/Llama-3.1-8B"


def shape(row):
    return {"prompt": f"Article:\n{row['article']}\n\nHeadline:", "completion": " " + row["headline"]}


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.pad_token = "<|finetune_right_pad_id|>"
    rows = load_dataset("json", data_files="headlines.jsonl", split="train")
    rows = rows.map(shape, remove_columns=rows.column_names)
    trainer = SFTTrainer(
        model=BASE,
        args=SFTConfig(
            output_dir="runs/headlines",
            model_init_kwargs={"dtype": "bfloat16"},
            deepspeed="zero3.json",
            learning_rate=1e-5,
            num_train_epochs=1,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            gradient_checkpointing=True,
            warmup_steps=20,
            max_length=2048,
            bf16=True,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=rows,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("runs/headlines/final")


if __name__ == "__main__":
    main()
