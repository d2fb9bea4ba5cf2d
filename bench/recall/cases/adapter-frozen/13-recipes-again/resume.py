import argparse

from datasets import load_dataset
from transformers import AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

from adapters import open_adapter, wake


def pair(row):
    return {
        "prompt": [{"role": "user", "content": f"Ingredients: {row['ingredients']}"}],
        "completion": [{"role": "assistant", "content": row["recipe"]}],
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-1.5B-Instruct")
    p.add_argument("--adapter", default="runs/recipes-1")
    p.add_argument("--out", default="runs/recipes-2")
    args = p.parse_args()
    set_seed(3)

    model = open_adapter(args.base, args.adapter)
    model = wake(model)
    tok = AutoTokenizer.from_pretrained(args.base)

    data = load_dataset("json", data_files="data/recipes_winter.jsonl", split="train")
    data = data.map(pair, remove_columns=data.column_names).train_test_split(0.05, seed=3)

    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=args.out,
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            max_length=1024,
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
