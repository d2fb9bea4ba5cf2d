from dataclasses import dataclass

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, set_seed
from trl import SFTConfig, SFTTrainer

from optim import make_optimizers


@dataclass
class Options:
    model: str = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
    data: str = "data/doctor_notes.jsonl"
    out: str = "runs/notes"
    lr: float = 1e-4
    steps: int = 1200
    rank: int = 32


def main():
    (opt,) = HfArgumentParser(Options).parse_args_into_dataclasses()
    set_seed(21)
    tok = AutoTokenizer.from_pretrained(opt.model)
    model = AutoModelForCausalLM.from_pretrained(opt.model, dtype=torch.bfloat16)

    ds = load_dataset("json", data_files=opt.data, split="train")
    ds = ds.map(
        lambda r: {
            "prompt": [{"role": "user", "content": r["dictation"]}],
            "completion": [{"role": "assistant", "content": r["note"]}],
        },
        remove_columns=ds.column_names,
    ).train_test_split(0.03, seed=21)

    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=opt.out,
            max_steps=opt.steps,
            learning_rate=opt.lr,
            per_device_train_batch_size=8,
            max_length=1536,
            bf16=True,
            eval_strategy="steps",
            eval_steps=200,
            save_steps=200,
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tok,
        peft_config=LoraConfig(
            r=opt.rank, lora_alpha=2 * opt.rank, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        optimizers=make_optimizers(model, opt.lr, opt.steps),
    )
    trainer.train()
    trainer.save_model(opt.out)


if __name__ == "__main__":
    main()
