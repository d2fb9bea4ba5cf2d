import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

from scoring import metric_kwargs

NAME = "Qwen/Qwen2.5-1.5B-Instruct"


def main():
    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    ds = load_from_disk("data/tokenized")
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="out/lora",
            learning_rate=2e-4,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=8,
            warmup_steps=20,
            bf16=True,
            logging_steps=10,
            eval_strategy="epoch",
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["validation"],
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
        **metric_kwargs(),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
