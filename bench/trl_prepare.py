"""`python -m bench.trl_prepare DATA TOKENIZER PROCESSES [TEMPLATE]`: what TRL does to chats before it trains.

Builds an `SFTTrainer` over a model of a few weights, and prints the seconds of that call as JSON. TEMPLATE is the
name of one of TRL's own training templates (`llama3`), for tokenizers whose template TRL does not recognise.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from importlib.resources import files
from typing import Any


def load(folder: str, name: str | None = None) -> tuple[Any, str, bool]:
    """The tokenizer, how TRL masks what is no answer, and whether it can."""
    from transformers import AutoTokenizer
    from trl.chat_template_utils import get_training_chat_template, has_generation_markers

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    if has_generation_markers(tokenizer.chat_template):
        return tokenizer, "masks by the tokenizer's own template", True
    if name:
        tokenizer.chat_template = (
            files("trl") / "chat_templates" / f"{name}_training.jinja"
        ).read_text("utf-8")
        return tokenizer, f"masks by TRL's {name}_training.jinja", True
    try:
        get_training_chat_template(tokenizer)
    except ValueError:
        return tokenizer, "can't mask this template: every token is learned", False
    return tokenizer, "masks by TRL's template for this tokenizer", True


def prepare(
    data: str, folder: str, processes: int, name: str | None = None
) -> dict[str, float | str]:
    """Seconds of `SFTTrainer(...)`, and how it masks."""
    import datasets
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    tokenizer, masks, masked = load(folder, name)
    sizes: Any = {
        f"num_{part}": 1 for part in ("hidden_layers", "attention_heads", "key_value_heads")
    }
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, **sizes)
    )
    rows = datasets.load_dataset("json", data_files=data, split="train")
    with tempfile.TemporaryDirectory() as out:
        settings = SFTConfig(
            output_dir=out,
            assistant_only_loss=masked,
            dataset_num_proc=processes,
            max_length=4096,
            report_to=[],
            use_cpu=True,
            bf16=False,
        )
        began = time.perf_counter()
        trainer: Any = SFTTrainer(
            model=model, args=settings, train_dataset=rows, processing_class=tokenizer
        )
        seconds = time.perf_counter() - began
    if not {"input_ids", "labels"} <= set(trainer.train_dataset.column_names):
        raise SystemExit(
            f"TRL made the columns {trainer.train_dataset.column_names}, without labels"
        )
    return {"seconds": seconds, "masks": masks}


if __name__ == "__main__":
    print(json.dumps(prepare(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])))
