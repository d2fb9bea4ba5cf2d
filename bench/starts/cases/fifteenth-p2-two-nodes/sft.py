from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser


def main():
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    script_args, training_args, model_args = parser.parse_args_and_config()

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)

    ds = load_dataset("json", data_files=script_args.dataset_name, split="train")
    ds = ds.map(
        lambda r: {
            "prompt": [{"role": "user", "content": r["instruction"]}],
            "completion": [{"role": "assistant", "content": r["response"]}],
        },
        remove_columns=ds.column_names,
    )

    training_args.model_init_kwargs = {"dtype": "bfloat16", "attn_implementation": "flash_attention_2"}

    trainer = SFTTrainer(
        model=model_args.model_name_or_path,
        args=training_args,
        train_dataset=ds,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=32,
            lora_alpha=64,
            lora_dropout=0.05,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )
    trainer.train()
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    main()
