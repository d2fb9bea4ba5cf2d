import argparse

from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

from loading import LoadSpec, load


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--beta", type=float, default=0.1)
    ap.add_argument("--out", default="out/dpo")
    a = ap.parse_args()

    model, tok = load(LoadSpec(a.base))
    pairs = load_dataset("trl-lib/ultrafeedback_binarized")
    trainer = DPOTrainer(
        model=model,
        args=DPOConfig(
            output_dir=a.out,
            beta=a.beta,
            learning_rate=5e-6,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            num_train_epochs=1,
            max_length=2048,
            bf16=True,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            warmup_steps=50,
            logging_steps=10,
            eval_strategy="steps",
            eval_steps=200,
            save_steps=200,
            report_to="none",
        ),
        train_dataset=pairs["train"],
        eval_dataset=pairs["test"].select(range(500)),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
