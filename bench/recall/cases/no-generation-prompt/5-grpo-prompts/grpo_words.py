import re

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser

SYSTEM = "Solve the word puzzle. Reason briefly, then write the solution in \\boxed{}."


def boxed(text):
    m = re.findall(r"\\boxed\{([^}]*)\}", text)
    return m[-1].strip().lower() if m else None


def solved(completions, solution, **kwargs):
    return [1.0 if boxed(c) == s.lower() else 0.0 for c, s in zip(completions, solution)]


def well_formed(completions, **kwargs):
    return [0.1 if boxed(c) is not None else 0.0 for c in completions]


def main(script_args, training_args, model_args):
    tok = AutoTokenizer.from_pretrained(model_args.model_name_or_path, padding_side="left")

    def make(row):
        chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["puzzle"]}]
        return {"prompt": tok.apply_chat_template(chat, tokenize=False), "solution": row["solution"]}

    ds = load_dataset("json", data_files=script_args.dataset_name, split="train")
    ds = ds.map(make, remove_columns=["puzzle"])
    model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, dtype=torch.bfloat16)
    trainer = GRPOTrainer(
        model=model,
        processing_class=tok,
        reward_funcs=[solved, well_formed],
        args=training_args,
        train_dataset=ds,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    main(*TrlParser((ScriptArguments, GRPOConfig, ModelConfig)).parse_args_and_config())
