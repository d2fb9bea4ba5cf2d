import os

import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

MODEL = "meta-llama/Llama-3.3-70B-Instruct"
DATA = "/scratch/users/jk/data/legal_sft_tok"


def build_model():
    model = AutoModelForCausalLM.from_pretrained(
        MODEL,
        dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
    )
    model.config.use_cache = False
    model.enable_input_require_grads()
    lora = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, lora)
    if int(os.environ.get("LOCAL_RANK", 0)) == 0:
        model.print_trainable_parameters()
    return model


def main():
    tok = AutoTokenizer.from_pretrained(MODEL)
    tok.pad_token = "<|finetune_right_pad_id|>"
    ds = load_from_disk(DATA)  # input_ids / attention_mask / labels
    model = build_model()

    args = TrainingArguments(
        output_dir="/scratch/users/jk/runs/l70b",
        deepspeed="ds_z3.json",
        num_train_epochs=2,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        logging_steps=5,
        save_steps=200,
        report_to="wandb",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
