"""Runs that are stopped and started again: `python -m tests.training.killed FOLDER CASE...` prints a line of JSON each.

A CASE is KIND:WHEN+WHEN... KIND is lora, full, dpo or grpo; WHEN is what happens in the first run, in the second, and
so on; in the one after the last nothing does. step7: it is killed after step 7. save8: while checkpoint-8 is written.
sigint5, sigterm5: it is told to end in step 5; twice5: two times. full8: there is no room for checkpoint-8. end: it is
killed after the last step. Each run is a process of its own, forked from this one, in which nothing has been trained.
"""

from __future__ import annotations

import gc
import json
import os
import re
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import datasets  # noqa: F401 (loaded once, before the forks)
import peft  # noqa: F401
import torch
import transformers.models.llama.modeling_llama
import trl  # noqa: F401

import truetune
from tests.auditing import tiny
from tests.checkpoint import make
from truetune.checkpoint.read_run_and_check_checkpoints import list_checkpoints

STEPS = 12
REWARDS = """
def different_characters(completions, **columns):
    return [float(len(set(completion[0]["content"]))) for completion in completions]
"""
ROOM = 4096
"""Bytes of a file that a full disk takes"""


class Trouble(transformers.TrainerCallback):
    """Makes it happen."""

    def __init__(self, when: str) -> None:
        found = re.fullmatch(r"([a-z]+)(\d*)", when)
        self.what, self.step = (found[1], int(found[2] or STEPS)) if found else ("", 0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            if self.what == "full":
                resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, resource.RLIM_INFINITY))
            for number in {"step": [9], "sigint": [2], "sigterm": [15], "twice": [2, 2]}.get(
                self.what, []
            ):
                os.kill(os.getpid(), number)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.what == "save" and state.global_step == self.step:
            os.truncate(Path(args.output_dir, f"checkpoint-{self.step}", "optimizer.pt"), 100)
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.what == "end":
            os.kill(os.getpid(), signal.SIGKILL)


def settings(kind: str, root: Path, folder: Path) -> dict[str, Any]:
    """Of a short run with all that needs a state: dropout, shuffling, accumulation, sums between two lines of the log,
    evaluation on held-out rows, answers to them."""
    training = {
        **{
            "output_dir": str(folder),
            "method": kind if kind in ("dpo", "grpo") else "sft",
            "learning_rate": 1e-2,
        },
        **{
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 2,
            "max_steps": STEPS,
            "logging_steps": 3,
        },
        **{"save_steps": 4, "save_total_limit": 2, "val_size": 2, "attn_implementation": "eager"},
    }
    if kind == "grpo":
        # Two prompts a step, of 18: an epoch ends within the run.
        training |= {
            "rewards": f"{root / 'rewards.py'}:different_characters",
            "num_generations": 2,
            "max_completion_length": 6,
        }
    if kind != "full":
        training["lora"] = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1}
    data = root / f"{kind}.jsonl"
    return {
        **{
            "model": str(root / "base"),
            "tokenizer": str(root / "base"),
            "data": str(data),
            "max_length": 96,
        },
        **{
            "encode": {"packing": "none"},
            "training": training,
            "rehearsal": False,
            "trainer": {"report_to": "none"},
        },
        "watch": {"prompts": 1, "max_new_tokens": 4},
    }


def prepare(root: Path) -> Path:
    """A base model and its data."""
    make.base(root / "base", attention_dropout=0.1, max_position_embeddings=512)
    for kind, rows in {
        "lora": tiny.chats(20),
        "full": tiny.chats(20),
        "grpo": tiny.chats(20),
        "dpo": tiny.pairs(20),
    }.items():
        (root / f"{kind}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        )
    (root / "rewards.py").write_text(REWARDS, encoding="utf-8")
    return root


def run(root: Path, folder: Path, kind: str, when: str = "") -> tuple[int, str]:
    """(exit code, what was said) of a run in a process of its own."""
    said = root / "said.txt"
    child = os.fork()
    if not child:
        handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        code = 0
        torch.set_num_threads(
            1
        )  # makes torch's own pool again, before two threads of the loading try to at once
        try:
            truetune.train(**settings(kind, root, folder), force=True, callbacks=[Trouble(when)])
        except KeyboardInterrupt as error:
            code = 128 + getattr(error, "signal", 2)
        except BaseException:
            code = 1
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said.read_text(encoding="utf-8")


def log(folder: Path) -> list[dict[str, float]]:
    """The log of a run, without what depends on the clock."""
    entries = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    clocked = ("runtime", "_per_second", "step_time")
    return [
        {k: v for k, v in entry.items() if not k.endswith(clocked)}
        for entry in entries
        if "train_loss" not in entry
    ]


def compared(root: Path, case: str) -> dict[str, Any]:
    """A run that was stopped and started again, against one that was not."""
    kind, troubles = case.split(":")
    whole, folder = root / f"{kind}-whole", root / case.replace(":", "-")
    if not whole.exists():
        code, said = run(root, whole, kind)
        assert code == 0, said
    runs = []
    for when in (*troubles.split("+"), ""):
        code, said = run(root, folder, kind, when)
        status = json.loads((folder / "run.json").read_text(encoding="utf-8"))["status"]
        left = [path.name for path in list_checkpoints(folder)]
        runs.append({"code": code, "status": status, "left": left, "said": said})
    weights = "model.safetensors" if kind == "full" else "adapter_model.safetensors"
    same = (folder / weights).is_file() and (folder / weights).read_bytes() == (
        whole / weights
    ).read_bytes()
    entries = log(folder) if same else []
    return {
        "case": case,
        "runs": runs,
        "weights": same,
        "log": entries == log(whole),
        "entries": entries,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    home = prepare(Path(sys.argv[1]))
    gc.collect()
    gc.freeze()  # else each run's collections copy all that was imported
    for name in sys.argv[2:]:
        print(json.dumps(compared(home, name)), flush=True)
