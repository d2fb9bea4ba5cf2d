from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer


def main():
    model_id = "Qwen/Qwen2.5-7B-Instruct"
    tokenizer = AutoTokenizer.from_pretrained(model_id)
    # {"prompt": [...], "completion": [...]}, 38k rows
    ds = load_dataset("json", data_files="/scratch/proj/sft_v3.jsonl", split="train")
    ds = ds.train_test_split(test_size=500, seed=1)
    cfg = SFTConfig(
        output_dir="/scratch/proj/out/qwen7b-full",
        model_init_kwargs={"torch_dtype": "bfloat16", "attn_implementation": "flash_attention_2"},
        num_train_epochs=2,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        max_grad_norm=1.0,
        bf16=True,
        max_length=4096,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=200,
        save_steps=200,
        save_total_limit=2,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model_id,
        args=cfg,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
