import json

import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, TrainingArguments

from clinical_trainer import ClinicalTrainer

NAME = "mistralai/Mistral-7B-Instruct-v0.3"


def main():
    tok = AutoTokenizer.from_pretrained(NAME)
    tok.pad_token = tok.unk_token
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    with open("data/icd_codes.json", encoding="utf-8") as fh:
        codes = json.load(fh)
    code_ids = {i for c in codes for i in tok(c, add_special_tokens=False)["input_ids"]}
    ds = load_from_disk("data/clinical_tokenized")

    trainer = ClinicalTrainer(
        model=model,
        args=TrainingArguments(
            output_dir="out/clinical",
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=2,
            per_device_eval_batch_size=2,
            gradient_accumulation_steps=8,
            warmup_steps=20,
            bf16=True,
            logging_steps=10,
            eval_strategy="epoch",
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["validation"],
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
        code_token_ids=code_ids,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
