"""Shared reasons why rules can say nothing, each with the flag, file or setting that unlocks them."""

from __future__ import annotations

from truetune.checks.judgement import Unmet

LOG_MORE = "log more often (logging_steps: 1), or name the log of a longer run"
LOGGED_BY = {
    "epoch": "log the epoch, as transformers does",
    "loss": "log the loss (logging_steps; report_to for a file that holds it)",
    "eval_loss": "evaluate while training (eval_strategy and an eval_dataset)",
    "grad_norm": "log the gradient norm (transformers from 4.38 on does)",
    "learning_rate": "log the learning rate (transformers does at each logging step)",
    "rewards/margins": "log the rewards of pairs (TRL's DPO trainer does)",
    "rewards/accuracies": "log the rewards of pairs (TRL's DPO trainer does)",
    "logps/chosen": "log the log-probabilities of pairs (TRL's DPO trainer does)",
    "mean_token_accuracy": "log the token accuracy (TRL's SFTTrainer does)",
    "loss_scale": "log the loss scale, as DeepSpeed, Megatron and litgpt do",
    "wall_time": "name the TensorBoard or W&B files, which hold the time of each record",
}
"""What puts a curve into a log"""
OTHER_LOSS = Unmet("the loss is not that of predicting tokens, by the class in config.json")
RESUMED = Unmet(
    "the run was taken up again without what it had, which resume-starts-fresh is about"
)

A_KIND = {"model": "a model", "adapter": "an adapter"}
BROKEN = Unmet("a file is broken, which weights-file-broken is about")
NOT_LORA = Unmet("it is about LoRA, and this is another kind of adapter")
MERGED = Unmet("an adapter was merged into it, by the tensors that moved")
NO_VALUES = Unmet("no tensor of floating-point numbers could be read")
NO_GENERATION_CONFIG = Unmet(
    "there is no generation_config.json", "put the one that is served beside the weights"
)

NO_ANSWER = Unmet(
    "no answer was sampled", "ask for prompts that the model can answer (--data)", asked=True
)
ONE_PASS = Unmet(
    "the model was asked at one step",
    "ask it at several: truetune sample --watch RUN, or watch in training",
)
NOT_AGAINST = Unmet(
    "no other model was measured on the same rows", "name its base or another one with --against"
)
NOT_KNOWN_WHAT_WAS_TRAINED = Unmet(
    "it is not known which rows the model was trained on",
    "evaluate the folder of its run, or name them with --trained-on",
)
NOT_WITH_AND_WITHOUT = Unmet(
    "no reference answer was asked with and without the training",
    "ask rows with references, and name the base (--base)",
)

SEEN_BY = {
    "strength": "leave --no-strength out, and name the base (--base)",
    "stopping": "leave --no-strength out: the model's own answers are then compared",
    "sampling": "check again; it takes a server that answers to the end",
    "repeats": "check again; it takes a server that answers to the end",
    "context": "leave --longest out: a long prompt is then sent",
}
"""What lets each part of a service be looked at"""

NO_GPU = Unmet("torch sees no GPU", "run truetune doctor on the machine that trains")
HIP = Unmet("it is about GPUs of NVIDIA, and torch is built for AMD's")


def explain_too_short_curve(count: int, least: int, name: str) -> Unmet:
    """A curve that is too short to judge."""
    records = "record" if count == 1 else "records"
    unlock = "evaluate more often (eval_steps)" if name.startswith("eval_") else LOG_MORE
    return Unmet(
        f"the log has {count:,} finite {records} of {name}, and it takes {least:,}", unlock
    )


NO_VERDICTS = Unmet("no verdicts of a judge on pairs of answers were read", asked=True)
