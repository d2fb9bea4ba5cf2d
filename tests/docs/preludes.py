"""What a Python block may name without making it: small real ones, over the prepared folder."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained("path/to/model")


def _model() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained("path/to/model")


def _rows() -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in Path("chats.jsonl").read_text(encoding="utf-8").splitlines()
    ][:16]


def _dataset() -> Any:
    from datasets import Dataset

    return Dataset.from_list(_rows())


def _encoded() -> Any:
    from datasets import load_dataset

    return load_dataset("parquet", data_files="encoded/data/*.parquet", split="train").select(
        range(16)
    )


def _trainer() -> Any:
    from transformers import Trainer, TrainingArguments

    from truetune.collate import PaddingCollator

    few: dict[str, Any] = {
        "max_steps": 2,
        "per_device_train_batch_size": 2,
        "report_to": "none",
        "remove_unused_columns": False,
    }
    return Trainer(
        _model(),
        TrainingArguments("out", save_strategy="no", **few),
        train_dataset=_encoded(),
        data_collator=PaddingCollator.of(_tokenizer()),
        processing_class=_tokenizer(),
    )


def _loader() -> Any:
    from torch.utils.data import DataLoader

    from truetune.collate import PaddingCollator

    return DataLoader(_encoded(), batch_size=2, collate_fn=PaddingCollator.of(_tokenizer()))


def _module() -> Any:
    """As a LightningModule: it holds a model and has a training_step."""
    import torch

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = _model()

        def training_step(self, batch: dict[str, Any], _: int) -> Any:
            return self.model(**batch).loss

    return Module()


NAMES: dict[str, Callable[[], Any]] = {
    "tokenizer": _tokenizer,
    "model": _model,
    "rows": _rows,
    "dataset": _dataset,
    "trainer": _trainer,
    "loader": _loader,
    "module": _module,
    "text": lambda: "<|im_start|>user\nHello<|im_end|>\n",
}


def wanted(code: str) -> list[str]:
    """Those that the code reads and does not make."""
    names = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return sorted(
        {node.id for node in names if isinstance(node.ctx, ast.Load)} & NAMES.keys() - made
    )
