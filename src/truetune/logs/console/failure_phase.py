"""Tells what a program was doing when it failed (backward pass, saving, ...), by the frames of its
traceback.

Names of functions are looked for in the order of the table and not of the frames: a save inside of a training step has
both in its traceback, and what is more special says more. Names are those of transformers, Lightning, DeepSpeed and
datasets; a loop of one's own has no phase, and the finding then names the frame alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from truetune.logs.console.parse_tracebacks import Frame

FAILURE_PHASES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "while a checkpoint was saved",
        (),
        ("save_model", "_save_checkpoint", "save_pretrained", "_save"),
    ),
    ("while a model was merged", (), ("merge_and_unload", "merge_adapter")),
    (
        "in an evaluation",
        (),
        ("evaluate", "evaluation_loop", "prediction_step", "compute_metrics", "validation_step"),
    ),
    ("while text was generated", (), ("generate", "_sample", "_beam_search")),
    ("in the backward pass", (), ("backward", "_engine_run_backward", "training_step_backward")),
    (
        "in the optimizer's step",
        ("/optim/", "deepspeed/ops/adam", "bitsandbytes/optim"),
        ("optimizer_step",),
    ),
    ("in the collator", (), ("collate", "torch_call", "pad", "collate_fn", "data_collator")),
    ("in the forward pass", (), ("forward", "compute_loss", "training_step", "_call_impl")),
    (
        "while rows were prepared",
        ("datasets/arrow_dataset", "datasets/builder", "datasets/load"),
        ("map", "tokenize", "_prepare_dataset", "apply_chat_template", "load_dataset"),
    ),
    (
        "while the model was loaded",
        (),
        ("from_pretrained", "load_checkpoint_and_dispatch", "_load_pretrained_model"),
    ),
    (
        "while the processes were started",
        ("torch/distributed/rendezvous",),
        ("init_process_group", "launch_agent"),
    ),
)
"""What was done -> parts of file names, and names of functions; the first that fits a frame holds"""


def find_failure_phase(frames: Sequence[Frame]) -> str:
    """The phase of the training in which a program failed, as a phrase: `in the backward pass`.
    Empty if the frames do not say.
    """
    for phase, files, functions in FAILURE_PHASES:
        for frame in frames:
            if frame.function in functions or any(
                part in frame.file.replace("\\", "/")  # Windows
                for part in files
            ):
                return phase
    return ""
