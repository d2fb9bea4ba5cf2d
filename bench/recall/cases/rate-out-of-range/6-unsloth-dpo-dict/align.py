"""Second stage: preference tuning of our SFT adapter (1x A100 80GB)."""
from unsloth import FastLanguageModel, PatchDPOTrainer

PatchDPOTrainer()

from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

HP = {
    "base": "unsloth/Qwen2.5-7B-Instruct-bnb-4bit",
    "ctx": 2048,
    "rank": 32,
    "lr": 2e-4,
    "beta": 0.1,
    "epochs": 1,
    "bs": 4,
    "accum": 4,
}


def get_model(hp):
    model, tok = FastLanguageModel.from_pretrained(
        model_name=hp["base"], max_seq_length=hp["ctx"], load_in_4bit=True
    )
    model = FastLanguageModel.get_peft_model(
        model,
        r=hp["rank"],
        lora_alpha=hp["rank"],
        lora_dropout=0,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        use_gradient_checkpointing="unsloth",
        random_state=11,
    )
    return model, tok


def run(hp=HP):
    model, tok = get_model(hp)
    ds = load_dataset("trl-lib/ultrafeedback_binarized")
    trainer = DPOTrainer(
        model=model,
        ref_model=None,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        args=DPOConfig(
            per_device_train_batch_size=hp["bs"],
            gradient_accumulation_steps=hp["accum"],
            num_train_epochs=hp["epochs"],
            learning_rate=hp["lr"],
            warmup_steps=50,
            lr_scheduler_type="cosine",
            optim="adamw_8bit",
            beta=hp["beta"],
            max_length=hp["ctx"],
            bf16=True,
            logging_steps=10,
            eval_strategy="steps",
            eval_steps=250,
            save_steps=250,
            seed=11,
            output_dir="runs/align",
            report_to="none",
        ),
    )
    trainer.train()
    model.save_pretrained("runs/align/final")
    tok.save_pretrained("runs/align/final")


if __name__ == "__main__":
    run()
