"""A training that is looked at by a faulty hook: `python -m tests.probe.injection.subject TOKENIZER`.

Each line on stdin is an order; each is done in a fork of this process, which has imported all packages already (but
nothing of truetune), and answered with its exit code. Those packages are kept out of the forks' garbage collections,
each of which takes longer than the training.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import hashlib
import importlib.abc
import importlib.machinery
import json
import os
import random
import signal
import site
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import datasets
import torch
import transformers
from torch.utils.data import DataLoader
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer

from tests.probe.injection.functions import START, Function, with_fault

TIMES = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "step_time")
PATIENCE = 60.0
"""Seconds after which a subject hangs"""
HOOKED = str(START.parent)


class Faulty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with a fault in it."""

    def __init__(self, function: Function, fault: str, reached: str) -> None:
        self.function, self.fault, self.reached = function, fault, reached

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.function.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        code = compile(with_fault(self.function, self.fault, self.reached), "<faulty>", "exec")
        exec(code, vars(module))


class FreshImports(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules that were imported already, as if for the first time: the hook waits for that."""

    def __init__(self, *names: str) -> None:
        self.modules = {name: sys.modules.pop(name) for name in names}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name in self.modules else None

    def create_module(self, spec: Any) -> ModuleType:
        return self.modules.pop(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class Noisy(TrainerCallback):
    """A user's own callback, called after the hook."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        print("begins", state.global_step, flush=True)


def refuse(self: Any, *args: Any) -> Any:
    """What a method of an odd class does."""
    raise ArithmeticError("the user's own")


class Meta(type):
    """A metaclass whose classes can't be compared, and refuse to say their name."""

    __eq__ = refuse
    __hash__ = refuse


class Slotted(Trainer):
    __slots__ = ("own",)


class Early(Trainer):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(cls)


class Past(Trainer):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return object.__new__(cls)


KINDS: dict[str, Any] = {
    "plain": Trainer,
    "dataclass": dataclasses.dataclass(init=False)(type("OfFields", (Trainer,), {})),
    "eq": type("Equal", (Trainer,), {"__eq__": lambda self, other: True}),
    **{name: type("Odd", (Trainer,), {name: refuse})
       for name in ("__eq__", "__hash__", "__bool__", "__len__", "__getattr__", "__repr__", "__contains__")},
    "property": type("Property", (Trainer,), {"accelerator_config": property(refuse), "tokenizer": property(refuse)}),
    "slots": Slotted,
    "new": Early,
    "past": Past,
    "metaclass": Meta("OfMeta", (Trainer,), {}),
}  # fmt: skip


def arguments(kind: type[TrainingArguments], **more: Any) -> Any:
    """Of two steps of two batches each."""
    return kind(
        os.environ["OUT"],
        report_to="none",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        max_steps=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        logging_steps=1,
        save_strategy="no",
        **more,
    )


def sft_trainer(model: Any, tokenizer: Any, kind: str) -> Any:
    """A trainer of transformers, given rows of ids; `mapped`: a data set that the program itself has prepared."""
    texts = [
        f"How many pears are in box {i}? There are {i + 3}" + " today" * (i % 3) for i in range(8)
    ]

    def encode(row: dict[str, str]) -> dict[str, list[int]]:
        ids = tokenizer(row["text"])["input_ids"]
        return {"input_ids": ids, "labels": [-100] * 5 + ids[5:]}

    rows: Any = [encode({"text": text}) for text in texts]
    if kind == "mapped":
        named = (
            datasets.Dataset.from_dict({"story": texts})
            .rename_column("story", "text")
            .shuffle(seed=0)
        )
        mapped = named.map(encode, remove_columns=["text"])
        rows = datasets.concatenate_datasets([mapped, mapped.select(range(2))])
    collate = DataCollatorForSeq2Seq(tokenizer, model)
    made = KINDS.get(kind, Trainer)
    return made(
        model,
        arguments(TrainingArguments),
        collate,
        rows,
        processing_class=tokenizer,
        callbacks=[Noisy()],
    )


def dpo_trainer(model: Any, tokenizer: Any) -> Any:
    """A trainer of TRL, given pairs of answers."""
    pairs = [
        {
            "prompt": f"How many pears are in box {i}?",
            "chosen": f" There are {i + 3}.",
            "rejected": " Who knows?",
        }
        for i in range(8)
    ]
    return DPOTrainer(
        model,
        copy.deepcopy(model),
        arguments(DPOConfig),
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(pairs),
        callbacks=[Noisy()],
    )


def count_letters(completions: list[str], **_: Any) -> list[float]:
    """A user's own reward."""
    return [float(len(set(one))) for one in completions]


def grpo_trainer(model: Any, tokenizer: Any) -> Any:
    """A trainer of TRL that samples its answers."""
    given: Any = count_letters
    settings = {"num_generations": 2, "max_completion_length": 6, "remove_unused_columns": False}
    return GRPOTrainer(
        model,
        given,
        args=arguments(GRPOConfig, **settings),
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(
            [{"prompt": f"How many pears are in box {i}?"} for i in range(8)]
        ),
        callbacks=[Noisy()],
    )


class Loop:
    """A loop of the user's own over the rows of ids, with what `train` reads of a trainer."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        self.state = SimpleNamespace(log_history=[])
        texts = [
            f"How many pears are in box {i}? There are {i + 3}" + " today" * (i % 3)
            for i in range(16)
        ]
        rows = [tokenizer(text)["input_ids"] for text in texts]
        encoded: Any = [{"input_ids": ids, "labels": [-100] * 5 + ids[5:]} for ids in rows]
        self.loader = DataLoader(
            encoded, 2, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tokenizer, model)
        )

    def train(self) -> None:
        """Four steps of two micro-batches."""
        random.seed(0)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.model.train()
        for number, batch in enumerate(self.loader, 1):
            loss = self.model(**batch).loss
            loss.backward()
            if number % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
            self.state.log_history.append({"loss": loss.item()})
            print("micro-batch", number, flush=True)


def trainer_of(model: Any, tokenizer: Any, kind: str) -> Any:
    """What trains: a trainer of transformers or TRL, or a loop that is none."""
    if kind == "own loop":
        return Loop(model, tokenizer)
    if kind == "rollouts":
        return grpo_trainer(model, tokenizer)
    return (
        dpo_trainer(model, tokenizer)
        if kind == "preferences"
        else sft_trainer(model, tokenizer, kind)
    )


def train(tokenizer: Any, kind: str) -> None:
    """Some steps; whatever a hook could disturb is printed."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            attention_dropout=0.1,
        )
    )
    trainer = trainer_of(model, tokenizer, kind)
    trainer.train()
    weights = hashlib.sha256(
        b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    ).hexdigest()
    log = [
        {key: value for key, value in line.items() if key not in TIMES}
        for line in trainer.state.log_history
    ]
    print(
        json.dumps(
            {
                "log": log,
                "weights": weights,
                "random": [random.random(), torch.rand(()).item()],
                "modes": [m.training for m in model.modules()],
                "children": _children(),
            }
        )
    )


def _children() -> int:
    """Child processes that run."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        children = file.read().split()
    states = [
        Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] for child in children
    ]
    return sum(state != "Z" for state in states)


def begin(order: dict[str, Any]) -> None:
    """What happens as an interpreter starts below `truetune run`, and imports transformers."""
    os.environ["TRUETUNE_ORDERS"] = json.dumps(order["orders"])
    sys.path.insert(0, HOOKED)
    sys.modules.pop("sitecustomize", None)
    sys.meta_path.insert(0, FreshImports("datasets", "transformers", "transformers.trainer"))
    if order["function"] is not None:
        sys.meta_path.insert(
            0, Faulty(Function(*order["function"]), order["fault"], order["reached"])
        )
    site.execsitecustomize()
    for name in ("datasets", "transformers", "transformers.trainer"):
        __import__(name)


def live(order: dict[str, Any], tokenizer: Any) -> int:
    """The whole life of a subject; its exit code."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ["OUT"] = order["out"]
    try:
        if order["orders"] is not None:
            begin(order)
        train(tokenizer, order["kind"])
        code = 3  # as the training script's own
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def wait_for(child: int) -> int:
    """The exit code of a subject; -9 where it hangs."""
    end = time.monotonic() + PATIENCE
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            break
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1])


def serve() -> None:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    datasets.disable_progress_bars()
    transformers.logging.set_verbosity_error()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(live(json.loads(line), tokenizer))
        print(wait_for(child), flush=True)


if __name__ == "__main__":
    assert "truetune" not in sys.modules
    serve()
