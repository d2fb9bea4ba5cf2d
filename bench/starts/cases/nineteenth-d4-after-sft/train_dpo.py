# stage 2: preference tuning. stage 1 (train_sft.py) wrote out/sft-lora
import os

import torch
from datasets import load_dataset
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer, set_seed
from trl import DPOConfig, DPOTrainer

SFT_ADAPTER = "out/sft-lora"
OUT = "out/dpo-lora"
set_seed(11)


def load_policy():
    model = AutoPeftModelForCausalLM.from_pretrained(
        SFT_ADAPTER,
        is_trainable=True,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
        device_map={"": int(os.environ.get("LOCAL_RANK", 0))},
    )
    model.config.use_cache = False
    model.print_trainable_parameters()
    return model


def load_pairs():
    ds = load_dataset("parquet", data_files="/data/prefs/travel_pairs.parquet", split="train")

    def shape(row):
        return {
            "prompt": [
                {"role": "system", "content": "You are a travel agent. Be concrete, and short."},
                {"role": "user", "content": row["question"]},
            ],
            "chosen": [{"role": "assistant", "content": row["better"]}],
            "rejected": [{"role": "assistant", "content": row["worse"]}],
        }

    ds = ds.map(shape, remove_columns=ds.column_names, num_proc=8)
    return ds.train_test_split(test_size=0.03, seed=11)


def main():
    tok = AutoTokenizer.from_pretrained(SFT_ADAPTER)
    model = load_policy()
    ds = load_pairs()
    print(ds)

    args = DPOConfig(
        output_dir=OUT,
        beta=0.1,
        loss_type="sigmoid",
        max_length=2048,
        max_prompt_length=1024,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        bf16=True,
        logging_steps=1,
        logging_first_step=True,
        eval_strategy="no",
        save_strategy="epoch",
        report_to="none",
        seed=11,
    )

    trainer = DPOTrainer(
        model=model,
        ref_model=None,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tok,
    )
    trainer.train()
    print(trainer.evaluate())
    trainer.save_model(OUT)
    tok.save_pretrained(OUT)


if __name__ == "__main__":
    main()
