import argparse

import yaml
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

ap = argparse.ArgumentParser()
ap.add_argument("--config", default="sft.yaml")
with open(ap.parse_args().config) as f:
    conf = yaml.safe_load(f)

tok = AutoTokenizer.from_pretrained(conf["model"])
trainer = SFTTrainer(
    model=AutoModelForCausalLM.from_pretrained(conf["model"], dtype="bfloat16"),
    args=SFTConfig(**conf["sft"]),
    train_dataset=load_dataset("json", data_files=conf["data"], split="train"),
    processing_class=tok,
    peft_config=LoraConfig(task_type="CAUSAL_LM", **conf["lora"]),
)
trainer.train()
trainer.save_model(conf["sft"]["output_dir"])
