import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen3-4B"
PREVIEW_TOKENS = 256


def preview(model, tok, question):
    enc = tok.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(model.device)
    model.eval()
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=PREVIEW_TOKENS)
    print(tok.decode(out[0][enc["input_ids"].shape[1]:], skip_special_tokens=True))


def main():
    ds = load_dataset("json", data_files="cases.jsonl", split="train").train_test_split(0.15, seed=6)
    tok = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir="out/cases",
            max_length=4096,
            assistant_only_loss=True,
            num_train_epochs=3,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=4,
            gradient_checkpointing=True,
            learning_rate=1e-4,
            lr_scheduler_type="cosine",
            warmup_steps=2,
            bf16=True,
            logging_steps=1,
            eval_strategy="epoch",
            save_strategy="epoch",
            seed=6,
            report_to="none",
        ),
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("out/cases/final")
    preview(trainer.model, tok, ds["test"][0]["messages"][0]["content"])


if __name__ == "__main__":
    main()
