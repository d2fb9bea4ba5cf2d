from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Args:
    model_name_or_path: str = field()
    dataset_path: str = field()


def main():
    parser = HfArgumentParser((Args, SFTConfig))
    args, cfg = parser.parse_args_into_dataclasses()

    tok = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, attn_implementation="sdpa")
    model.config.use_cache = False

    ds = load_dataset("json", data_files=args.dataset_path, split="train")

    trainer = SFTTrainer(model=model, args=cfg, train_dataset=ds, processing_class=tok)
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
