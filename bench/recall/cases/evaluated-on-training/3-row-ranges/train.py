import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

from data import load_parts

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    parts = load_parts("trivia_10k.jsonl", tok)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="out/trivia",
            learning_rate=2e-4,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            bf16=True,
            warmup_steps=30,
            logging_steps=20,
            eval_strategy="steps",
            eval_steps=200,
            save_steps=200,
            load_best_model_at_end=True,
            report_to="none",
        ),
        train_dataset=parts["train"],
        eval_dataset=parts["valid"],
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("out/trivia/adapter")


if __name__ == "__main__":
    main()
