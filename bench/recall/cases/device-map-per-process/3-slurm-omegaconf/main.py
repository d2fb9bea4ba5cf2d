import sys

from datasets import load_dataset
from omegaconf import OmegaConf
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer


def build_model(cfg):
    return AutoModelForCausalLM.from_pretrained(cfg.name, **OmegaConf.to_container(cfg.load))


def build_data(cfg):
    ds = load_dataset("json", data_files=cfg.path, split="train").select_columns(["messages"])
    return ds.train_test_split(test_size=0.03, seed=cfg.seed)


def main(path):
    cfg = OmegaConf.load(path)
    set_seed(cfg.data.seed)
    data = build_data(cfg.data)
    trainer = SFTTrainer(
        model=build_model(cfg.model),
        args=SFTConfig(**OmegaConf.to_container(cfg.trainer)),
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=AutoTokenizer.from_pretrained(cfg.model.name),
        peft_config=LoraConfig(**OmegaConf.to_container(cfg.lora)),
    )
    trainer.train()
    trainer.save_model(cfg.trainer.output_dir)


if __name__ == "__main__":
    main(sys.argv[1])
