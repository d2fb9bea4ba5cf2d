#!/usr/bin/env python
"""Merge the LoRA of the claims model into its base, for vLLM."""
import sys
from pathlib import Path

from peft import PeftConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def merge(adapter_dir: Path, target: Path) -> None:
    cfg = PeftConfig.from_pretrained(adapter_dir)
    print(f"base: {cfg.base_model_name_or_path}")

    model = AutoModelForCausalLM.from_pretrained(
        cfg.base_model_name_or_path,
        device_map="cpu",
        low_cpu_mem_usage=True,
    )
    model = PeftModel.from_pretrained(model, adapter_dir)
    print("merging ...")
    model = model.merge_and_unload(safe_merge=True)

    target.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(target, max_shard_size="5GB")
    AutoTokenizer.from_pretrained(adapter_dir).save_pretrained(target)
    print(f"saved to {target}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: merge_adapter.py ADAPTER TARGET")
    merge(Path(sys.argv[1]), Path(sys.argv[2]))
