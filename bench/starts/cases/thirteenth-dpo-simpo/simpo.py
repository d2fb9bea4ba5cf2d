import torch
from accelerate import PartialState
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import CPOConfig, CPOTrainer

MODEL = "meta-llama/Meta-Llama-3-8B-Instruct"


def strip(row):
    return {
        "prompt": row["chosen"][:-1],
        "chosen": row["chosen"][-1:],
        "rejected": row["rejected"][-1:],
    }


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = "<|reserved_special_token_0|>"
    model = AutoModelForCausalLM.from_pretrained(
        MODEL, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2", use_cache=False
    )

    with PartialState().main_process_first():
        ds = load_dataset("princeton-nlp/llama3-ultrafeedback-armorm")
        ds = ds.map(strip, num_proc=8)
        ds = ds.remove_columns([c for c in ds["train"].column_names if c not in ("prompt", "chosen", "rejected")])

    args = CPOConfig(
        output_dir="llama3-8b-simpo",
        loss_type="simpo",
        cpo_alpha=0.0,
        beta=0.1,
        simpo_gamma=0.5,
        max_length=2048,
        max_prompt_length=1800,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-6,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=1,
        bf16=True,
        optim="adamw_torch",
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=200,
        save_strategy="epoch",
        seed=42,
        report_to="none",
    )
    trainer = CPOTrainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
