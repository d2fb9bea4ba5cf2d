from unsloth import FastLanguageModel
from unsloth.chat_templates import train_on_responses_only

import argparse

from datasets import load_dataset
from trl import SFTConfig, SFTTrainer


def cli():
    p = argparse.ArgumentParser()
    p.add_argument("--base", required=True)
    p.add_argument("--rows", required=True)
    p.add_argument("--ctx", type=int, default=4096)
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("--rate", type=float, default=2e-4)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--out", required=True)
    return p.parse_args()


def main():
    a = cli()
    model, tok = FastLanguageModel.from_pretrained(model_name=a.base, max_seq_length=a.ctx, load_in_4bit=True)
    model = FastLanguageModel.get_peft_model(
        model,
        r=a.rank,
        lora_alpha=2 * a.rank,
        lora_dropout=0,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        use_gradient_checkpointing="unsloth",
        random_state=0,
    )
    ds = load_dataset("json", data_files=a.rows, split="train")
    ds = ds.map(lambda r: {"text": tok.apply_chat_template(r["messages"], tokenize=False)})
    ds = ds.train_test_split(0.1, seed=0)
    trainer = SFTTrainer(
        model=model,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        args=SFTConfig(
            dataset_text_field="text",
            max_length=a.ctx,
            learning_rate=a.rate,
            num_train_epochs=a.epochs,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=4,
            warmup_steps=1,
            lr_scheduler_type="cosine",
            optim="adamw_8bit",
            bf16=True,
            logging_steps=1,
            eval_strategy="epoch",
            seed=0,
            output_dir=a.out,
            report_to="none",
        ),
    )
    trainer = train_on_responses_only(
        trainer, instruction_part="<|im_start|>user\n", response_part="<|im_start|>assistant\n"
    )
    trainer.train()
    model.save_pretrained(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
