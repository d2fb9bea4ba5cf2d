import os

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser


def to_messages(example):
    turns = []
    if example.get("system"):
        turns.append({"role": "system", "content": example["system"]})
    turns.append({"role": "user", "content": example["instruction"]})
    return {
        "prompt": turns,
        "completion": [{"role": "assistant", "content": example["response"]}],
    }


def main(script_args, training_args, model_args):
    set_seed(training_args.seed)

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        torch_dtype="bfloat16",
        attn_implementation=model_args.attn_implementation,
        use_cache=False,
    )

    ds = load_dataset("json", data_files=script_args.dataset_name, split="train")
    ds = ds.map(to_messages, remove_columns=ds.column_names, num_proc=8)
    ds = ds.train_test_split(test_size=500, seed=training_args.seed)

    trainer = SFTTrainer(
        model=model,
        args=training_args,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tokenizer,
    )
    trainer.train()

    metrics = trainer.evaluate()
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)

    final_dir = os.path.join(training_args.output_dir, "final")
    if trainer.accelerator.is_main_process:
        unwrapped = trainer.accelerator.unwrap_model(trainer.model)
        unwrapped.config.use_cache = True
        unwrapped.save_pretrained(final_dir, safe_serialization=True)
        tokenizer.save_pretrained(final_dir)
    trainer.accelerator.wait_for_everyone()


if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    main(*parser.parse_args_and_config())
