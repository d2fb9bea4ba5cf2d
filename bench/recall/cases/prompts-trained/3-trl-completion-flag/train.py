from datasets import load_dataset
from transformers import AutoTokenizer
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser, get_peft_config


def main(script_args, training_args, model_args):
    training_args.model_init_kwargs = {"dtype": model_args.dtype}
    tok = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    ds = load_dataset(script_args.dataset_name, data_files="rows.jsonl", split="train")
    ds = ds.train_test_split(test_size=0.1, seed=training_args.seed)
    trainer = SFTTrainer(
        model=model_args.model_name_or_path,
        args=training_args,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        peft_config=get_peft_config(model_args),
    )
    trainer.train()
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    main(*parser.parse_args_and_config())
