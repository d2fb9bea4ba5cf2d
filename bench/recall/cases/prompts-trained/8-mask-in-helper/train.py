import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

from data import ChatRows

BASE = "Qwen/Qwen2.5-3B-Instruct"


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model.enable_input_require_grads()
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    rows = ChatRows(tok).load("agent.jsonl")
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="runs/agent",
            learning_rate=1e-4,
            num_train_epochs=3,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            gradient_checkpointing=True,
            warmup_steps=2,
            lr_scheduler_type="cosine",
            bf16=True,
            logging_steps=1,
            eval_strategy="epoch",
            save_strategy="epoch",
            seed=5,
            report_to="none",
        ),
        processing_class=tok,
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
    )
    trainer.train()
    trainer.save_model("runs/agent/final")


if __name__ == "__main__":
    main()
