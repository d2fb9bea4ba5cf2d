"""Train on a CPU with Axolotl or LLaMA-Factory by their own YAML, and write down what their model is given.

    python others.py axolotl config.yaml steps.pt
    python others.py llamafactory config.yaml steps.pt

Runs in the framework's own environment, which docs/trainers-others.md says how to make. `steps.pt` holds one (keyword
arguments of the model, loss) for each step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

Watch = Callable[[Any], None]


def axolotl(config: str, watch: Watch) -> None:
    from axolotl.cli.config import load_cfg
    from axolotl.common.datasets import load_datasets
    from axolotl.train import setup_model_and_trainer

    cfg = load_cfg(config)
    trainer, model, *_ = setup_model_and_trainer(cfg=cfg, dataset_meta=load_datasets(cfg=cfg))
    watch(model)
    trainer.train()


def llamafactory(config: str, watch: Watch) -> None:
    import yaml
    from llamafactory.train.tuner import run_exp
    from transformers import TrainerCallback

    class Watcher(TrainerCallback):
        def on_train_begin(
            self, args: Any, state: Any, control: Any, model: Any = None, **others: Any
        ) -> None:
            watch(model)

    with open(config, encoding="utf-8") as file:
        run_exp(yaml.safe_load(file), callbacks=[Watcher()])


def main(framework: str, config: str, out: str) -> None:
    steps: list[tuple[dict[str, Any], float]] = []

    def note(model: Any, args: Any, given: dict[str, Any], output: Any) -> None:
        tensors = {name: value.clone() for name, value in given.items() if torch.is_tensor(value)}
        steps.append((tensors, output.loss.item()))

    {"axolotl": axolotl, "llamafactory": llamafactory}[framework](
        config, lambda model: model.register_forward_hook(note, with_kwargs=True)
    )
    torch.save(steps, out)


if __name__ == "__main__":
    os.environ.update(
        {"HF_HUB_OFFLINE": "1", "AXOLOTL_DO_NOT_TRACK": "1", "CUDA_VISIBLE_DEVICES": ""}
    )
    main(*sys.argv[1:])
