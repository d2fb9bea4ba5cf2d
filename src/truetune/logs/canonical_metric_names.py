"""Gives one name to the quantities that loggers write under different names.

Rules ask for `loss` and `eval_loss`, whoever wrote them. A name that is not known here stays as it is: it is shown and
drawn, and no rule takes it for something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

STEP_KEYS = (
    "step",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "current_steps",
    "global_step/max_steps",
    "iteration",
    "iter",
    "Step",
    "_step",
)
"""Where a record says its step, best first"""

METRIC_ALIASES = {
    "lr": "learning_rate",
    "lrm": "learning_rate_multiplier",
    "lr_mult": "learning_rate_multiplier",
    "lr_multiplier": "learning_rate_multiplier",
    "lr_factor": "learning_rate_multiplier",
    "lr_scale": "learning_rate_multiplier",
    "train_loss": "loss",
    "train_loss_step": "loss",
    "training_loss": "loss",
    "loss_step": "loss",
    "reduced_train_loss": "loss",
    "val_loss": "eval_loss",
    "valid_loss": "eval_loss",
    "validation_loss": "eval_loss",
    "grad_norm_step": "grad_norm",
    "gradient_norm": "grad_norm",
    "total_tokens": "num_tokens",
    "num_input_tokens_seen": "num_tokens",
    "tokens": "num_tokens",
    "throughput": "tokens_per_second",
    "tokens_per_second_per_gpu": "tokens_per_second",
    "train_tokens_per_second": "tokens_per_second",
    "reward_accuracy": "rewards/accuracies",
    "token_acc": "mean_token_accuracy",
    "eval_token_acc": "eval_mean_token_accuracy",
    "_timestamp": "wall_time",
    "memory(GiB)": "memory",
    "memory/max_mem_active(gib)": "memory",
    "memory/max_active (GiB)": "memory",
    "memory/max_mem_active (GiB)": "memory",
    "peak_memory_active": "memory",
    "gpu_memory_gib": "memory",
    "val/contain_eos_token": "completions/ended",
    "val/num_eos_tokens": "completions/num_eos_tokens",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "learning_rate",
    "act_lr": "learning_rate",
    "actor/kl_loss": "kl",
    "critic/score/mean": "reward",
    "response_length/clip_ratio": "completions/clipped_ratio",
    "response_length/mean": "completions/mean_length",
    "response_length": "completions/mean_length",
    "reward/mean": "reward",
    "reward/all/mean": "reward",
    "loss/mean": "loss",
    "entropy/mean": "entropy",
    "entropy/all/mean": "entropy",
    "mismatch_kl/all/mean": "mismatch_kl/mean",
    "is_masked/mean": "masked_fraction/mean",
    "is_truncated/mean": "completions/clipped_ratio",
    "is_truncated/all/mean": "completions/clipped_ratio",
    "completion_len/mean": "completions/mean_length",
    "completion_len/all/mean": "completions/mean_length",
    "decode_len/mean": "completions/mean_length",
    "decode_len/all/mean": "completions/mean_length",
    "optim/grad_norm": "grad_norm",
    "optim/lr": "learning_rate",
    "train/kl_penalty": "kl",
    "approx_entropy": "entropy",
    "mean_gen_tokens_per_sample": "completions/mean_length",
    "truncation_rate": "completions/clipped_ratio",
}
"""Another spelling -> ours; `actor/`, `critic/` and `response_length/` are verl's, `val/contain_eos_token` is of TRL's
OnlineDPO, which writes it of the answers it trains on, `val/num_eos_tokens` of its PPO, `token_acc` is ms-swift's,
`reduced_train_loss` NeMo's, and `act_lr` and `response_length` stand in OpenRLHF's bar.
prime-rl writes the mean of a step behind the name (`reward/mean`; with several environments, `reward/all/mean`),
NeMo-RL the names from `train/kl_penalty` on: its `kl_penalty` is the KL itself, before the factor."""

NAN_ITERATIONS_CURVE = "nan_iterations"
"""Iterations without a finite loss since the last record, as Megatron counts them"""

NAMES_OF_PROGRAMS = {
    "verl": re.compile(
        r"actor/|critic/(?:score|rewards|advantages|values|vf)|response_length/|timing_s/"
    ),
    "prime-rl": re.compile(r"mismatch_kl/|decode_len/|is_truncated/"),
    "nemo-rl": re.compile(
        r"(?:train/)?(?:gen_kl_error|mean_gen_tokens_per_sample|token_mult_prob_error)$"
    ),
    "openrlhf": re.compile(r"(?:train/)?(?:actor_lr|actor_grad_norm|vllm_kl)$"),
}
"""Program -> how quantities begin that it alone logs"""

RUN_RESULT_NAMES = {
    "train_runtime",
    "train_samples_per_second",
    "train_steps_per_second",
    "total_flos",
    "train_tokens_per_second_total",
}
RUN_RESULT_KEYS = RUN_RESULT_NAMES | {f"train/{name}" for name in RUN_RESULT_NAMES}
"""Figures on the whole run that a record may hold; `train_loss` beside one of them is the mean of the run"""

MEAN_TRAIN_LOSS = "train/train_loss"
"""Where transformers writes that mean among the curves of TensorBoard and W&B; with other trainers, it is the loss"""

SPLIT_PREFIXES = (
    ("train/", ""),
    ("eval/", "eval_"),
    ("val/", "eval_"),
    ("valid/", "eval_"),
    ("validation/", "eval_"),
)


def canonical_metric_name(name: str) -> str:
    """truetune's name for a logged quantity (`train/loss` -> `loss`, `eval/loss` -> `eval_loss`,
    `lr-AdamW` -> ...); an unknown name as it is.
    """
    # a mean of the run or a loss of each step: only the whole log tells (RunLogBuilder)
    if name == MEAN_TRAIN_LOSS:
        return name
    if name in METRIC_ALIASES:
        return METRIC_ALIASES[name]
    for prefix, ours in SPLIT_PREFIXES:
        if name.startswith(prefix):
            name = ours + name[len(prefix) :]
            break
    # Lightning's LearningRateMonitor: one curve for each group of parameters, of which the first stands for the run
    if name.startswith("lr-"):
        return "learning_rate" if "/pg" not in name or name.endswith("/pg1") else name
    return METRIC_ALIASES.get(name, name)


def program_of_metric_names(names: Iterable[str]) -> str:
    """The program that trains by rewards and names its quantities so; empty for TRL, and where the names don't tell.

    Args:
        names: as they were logged.
    """
    logged = tuple(names)
    return next(
        (
            program
            for program, pattern in NAMES_OF_PROGRAMS.items()
            if any(pattern.match(name) for name in logged)
        ),
        "",
    )
