"""Merge the axolotl adapter into fp16/bf16 weights for vLLM."""
import logging
import os
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("merge")

BASE = os.environ.get("BASE_MODEL", "Qwen/Qwen2.5-7B")
ADAPTER = Path("runs/contracts-v3")
OUT = Path("merged/contracts-v3")


def main():
    log.info("loading %s", BASE)
    base = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map="cpu")
    log.info("loading adapter %s", ADAPTER)
    model = PeftModel.from_pretrained(base, str(ADAPTER))
    model = model.merge_and_unload(safe_merge=True, progressbar=True)
    OUT.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(OUT, safe_serialization=True, max_shard_size="5GB")
    tok = AutoTokenizer.from_pretrained(ADAPTER)
    tok.save_pretrained(OUT)
    log.info("done, wrote %s", OUT)


if __name__ == "__main__":
    main()
