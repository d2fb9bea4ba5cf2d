import yaml
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

from loading import from_spec

if __name__ == "__main__":
    with open("job.yaml") as f:
        job = yaml.safe_load(f)
    model, tok = from_spec(job["model"])
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(**job["sft"]),
        train_dataset=load_dataset("json", data_files=job["data"], split="train"),
        processing_class=tok,
        peft_config=LoraConfig(task_type="CAUSAL_LM", **job["lora"]),
    )
    trainer.train()
    trainer.save_model()
