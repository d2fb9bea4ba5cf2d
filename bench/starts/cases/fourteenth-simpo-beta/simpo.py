from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import CPOConfig, CPOTrainer


@dataclass
class ScriptArguments:
    model_name: str = field(default="alignment-handbook/zephyr-7b-sft-full")
    dataset_name: str = field(default="trl-lib/ultrafeedback_binarized")


def main():
    parser = HfArgumentParser((ScriptArguments, CPOConfig))
    script_args, training_args = parser.parse_yaml_file("simpo.yaml")

    tokenizer = AutoTokenizer.from_pretrained(script_args.model_name)
    model = AutoModelForCausalLM.from_pretrained(
        script_args.model_name,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
    )
    model.config.use_cache = False

    dataset = load_dataset(script_args.dataset_name)

    trainer = CPOTrainer(
        model=model,
        args=training_args,
        train_dataset=dataset["train"],
        eval_dataset=dataset["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.model.config.use_cache = True
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    main()
