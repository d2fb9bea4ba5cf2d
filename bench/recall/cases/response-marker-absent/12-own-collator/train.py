import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments

from collate import AnswerCollator
from settings import Settings


def render(row, eos):
    return "### Task:\n" + row["task"] + "\n\n### Solution:\n" + row["solution"] + eos


def main():
    (s,) = HfArgumentParser(Settings).parse_args_into_dataclasses()
    tok = AutoTokenizer.from_pretrained(s.base, padding_side="right")
    tok.pad_token = tok.eos_token
    rows = load_dataset("json", data_files=s.data, split="train")
    rows = rows.map(lambda r: {"text": render(r, tok.eos_token)}, remove_columns=rows.column_names)
    model = AutoModelForCausalLM.from_pretrained(s.base, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                                             target_modules="all-linear", task_type="CAUSAL_LM"))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=s.out,
            learning_rate=s.lr,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            warmup_steps=20,
            bf16=True,
            remove_unused_columns=False,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=rows,
        data_collator=AnswerCollator(tok, s.answer_mark, s.max_length),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(s.out + "/adapter")


if __name__ == "__main__":
    main()
