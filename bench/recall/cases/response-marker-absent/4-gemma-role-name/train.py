import sys

import yaml
from unsloth import FastModel
from unsloth.chat_templates import get_chat_template, train_on_responses_only
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer


def main(path="settings.yaml"):
    with open(path) as fh:
        s = yaml.safe_load(fh)
    model, tokenizer = FastModel.from_pretrained(s["model"], max_seq_length=s["max_length"], load_in_4bit=True)
    model = FastModel.get_peft_model(
        model, finetune_vision_layers=False, r=s["lora"]["r"], lora_alpha=s["lora"]["alpha"], lora_dropout=0
    )
    tokenizer = get_chat_template(tokenizer, chat_template="gemma-3")

    def render(batch):
        texts = [tokenizer.apply_chat_template(m, tokenize=False).removeprefix("<bos>") for m in batch["messages"]]
        return {"text": texts}

    rows = load_dataset("json", data_files=s["rows"], split="train").map(render, batched=True)
    t = s["train"]
    trainer = SFTTrainer(
        model=model, processing_class=tokenizer, train_dataset=rows,
        args=SFTConfig(
            output_dir="runs", dataset_text_field="text", max_length=s["max_length"],
            per_device_train_batch_size=t["batch"], gradient_accumulation_steps=t["accumulate"],
            num_train_epochs=t["epochs"], learning_rate=t["lr"], warmup_steps=10, logging_steps=5,
            optim="adamw_8bit", report_to="none",
        ),
    )
    trainer = train_on_responses_only(
        trainer, instruction_part=s["mask"]["instruction"], response_part=s["mask"]["response"]
    )
    trainer.train()
    model.save_pretrained(s["out"])
    tokenizer.save_pretrained(s["out"])


if __name__ == "__main__":
    main(*sys.argv[1:])
