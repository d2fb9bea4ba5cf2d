from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from callbacks import SamplePrinter

BASE = "Qwen/Qwen2.5-14B-Instruct"


def main():
    args = SFTConfig(
        output_dir="out/hr",
        deepspeed="zero3.json",
        learning_rate=1e-5,
        num_train_epochs=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        max_length=2048,
        bf16=True,
        gradient_checkpointing=True,
        lr_scheduler_type="cosine",
        warmup_steps=30,
        logging_steps=10,
        save_strategy="epoch",
        report_to="none",
    )
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype="bfloat16")
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=load_dataset("json", data_files="hr_chats.jsonl", split="train"),
        processing_class=tok,
        callbacks=[SamplePrinter(tok, ["How many days of leave do I have?", "Who signs my travel request?"])],
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
