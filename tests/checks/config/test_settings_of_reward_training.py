"""Settings of trainings by rewards, in the words of each program: one rule judges them all."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.config.settings import VERL
from truetune.checks.judge_settings import judge_settings
from truetune.checks.rule_catalogue import all_rules
from truetune.parsing.shell_commands import read_command_file
from truetune.settings.config import Config
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.settings.stacks.settings_of_stack_commands import (
    configs_of_commands_without_settings_file,
)
from truetune.source.parsed_source_file import parse_module, read_module
from truetune.source.settings_of_script_as_configs import extract_configs

GRPO: dict[str, Any] = {
    "model_name_or_path": "some/model",
    "dataset_name": "some/rows",
    "num_generations": 8,
    "max_completion_length": 512,
}
NEMO_RL: dict[str, Any] = {
    "grpo": {"num_prompts_per_step": 32, "num_generations_per_prompt": 16},
    "policy": {"model_name": "some/model", "generation": {"backend": "vllm", "temperature": 1.0}},
    "checkpointing": {"enabled": True},
}
PRIME_RL = """\
max_steps = 20

[model]
name = "some/model"

[orchestrator]
batch_size = 128
group_size = 16

[orchestrator.train.sampling]
max_completion_tokens = 2048  # tokens

[trainer.optim]
lr = 3e-6

[inference.vllm]
max_model_len = 4096
"""
PRIME_RL_ALONE = PRIME_RL[: PRIME_RL.index("\n[inference")]
"""Its engine's length is not set"""
PRIME_RL_OLD = PRIME_RL_ALONE.replace("train.sampling", "sampling").replace(
    "max_completion_tokens", "max_tokens"
)
SWIFT = (
    "NPROC_PER_NODE=2 swift rlhf --rlhf_type grpo --model some/model --num_generations 8"
    " --per_device_train_batch_size 4 --use_vllm true --max_completion_length 1024"
)
OPENRLHF = (
    "python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path some/model"
    " --algo.advantage.estimator group_norm --rollout.n_samples_per_prompt 8"
)
VERL_COMMAND = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo"
    " actor_rollout_ref.model.path=some/model actor_rollout_ref.rollout.n=8"
)
BY_NAME = {rule.name(): rule for rule in all_rules("config")}


def _changed(settings: dict[str, Any], **changes: object) -> dict[str, Any]:
    """Settings with some of them changed: `actor_rollout_ref__rollout__n=1`."""
    copy = deepcopy(settings)
    for name, value in changes.items():
        *tables, last = name.split("__")
        table = copy
        for key in tables:
            table = table.setdefault(key, {})
        table[last] = value
    return copy


def _config(settings: dict[str, Any] | str, folder: Path) -> Config:
    """Settings as their program writes them: a table is YAML, `[model]` TOML, an import a script, else a command."""
    if isinstance(settings, dict):
        path = folder / "run.yaml"
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        return read_config(path)
    if "[model]" in settings:
        path = folder / "rl.toml"
        path.write_text(settings, encoding="utf-8")
        return read_config(path)
    if settings.startswith("from trl"):
        (config,) = extract_configs(parse_module(settings, "train.py"))
        return config
    path = folder / "run.sh"
    path.write_text(settings + "\n", encoding="utf-8")
    (config,) = configs_of_commands_without_settings_file(read_command_file(path))
    return config


def _found(name: str, settings: dict[str, Any] | str, folder: Path) -> list[str]:
    """What a rule says of settings, with the severity."""
    rule = BY_NAME[name](_config(settings, folder))
    return [f"{one.severity}: {one.message}" for one in rule.findings()]


CUT = "sampling-cut-biases-the-importance-ratio"
LIMIT = "answers-do-not-fit-into-the-engine"
WEIGHTS = "reward-weights-do-not-match-functions"
GROUPS = "generated-batch-splits-groups"
SPREAD = "dr-grpo-divides-by-the-spread"
TWICE = "kl-penalty-counted-twice"
CORRECTION = "sampling-engine-is-not-corrected-for"
EXPLODES = "normalized-leave-one-out-explodes"
BONUS = "entropy-bonus-outweighs-the-reward"
RANGE = "setting-out-of-range"
ONLINE = (
    "from trl.experimental.online_dpo import OnlineDPOConfig\n"
    "args = OnlineDPOConfig(output_dir='o', max_new_tokenz=64, beta=[0.1, 0.2])\n"
)
DISTILLED = (
    "from trl.experimental.gkd import GKDConfig\n"
    "args = GKDConfig(output_dir='o', lmdba=0.5, seq_kd=True)\n"
)
WARMUP = "warmup-longer-than-run"
OVERRULED = "setting-overruled"
UPDATES = "many-updates-on-one-rollout"
CLIP = "clip-range-does-not-fit-the-ratio"
SHORT = "generation-limit-below-answers"
ACTOR = "actor_rollout_ref.actor"
MINI_BATCH, LOSS_MODE = f"{ACTOR}.ppo_mini_batch_size", f"{ACTOR}.policy_loss.loss_mode"
LOW, HIGH = f"{ACTOR}.clip_ratio_low", f"{ACTOR}.clip_ratio_high"
NO_ACCUMULATION = "--gradient_accumulation_steps 1"
SEQUENCE = "--importance_sampling_level sequence"
SCRIPT = "from trl import GRPOConfig\nargs = GRPOConfig(output_dir='o', {})\n"


def _limits_of_nemo_rl(answers: int, engine: int) -> dict[str, Any]:
    """NeMo RL with limits on answers and on the context of its engine."""
    return _changed(
        NEMO_RL,
        policy__generation__max_new_tokens=answers,
        policy__generation__vllm_cfg={"max_model_len": engine},
    )


def _verl(
    actor_lr_warmup_steps: int | None = None,
    lr_warmup_steps_ratio: float | None = None,
    steps: int | None = None,
) -> str:
    """A command of verl with a warm-up."""
    words = [VERL_COMMAND]
    if actor_lr_warmup_steps is not None:
        words.append(f"{ACTOR}.optim.lr_warmup_steps={actor_lr_warmup_steps}")
    if lr_warmup_steps_ratio is not None:
        words.append(f"{ACTOR}.optim.lr_warmup_steps_ratio={lr_warmup_steps_ratio}")
    if steps is not None:
        words.append(f"trainer.total_training_steps={steps}")
    return " ".join(words)


def _warmup_of_nemo_rl(steps: int) -> dict[str, Any]:
    """A run of 40 steps of NeMo RL whose rate rises for so many."""
    linear = "torch.optim.lr_scheduler.LinearLR"
    rise = {
        "name": linear,
        "kwargs": {"start_factor": 0.1, "end_factor": 1.0, "total_iters": steps},
    }
    return _changed(NEMO_RL, grpo__max_num_steps=40, policy__scheduler=[rise, {"milestones": [5]}])


def _kl_of_verl(in_loss: tuple[bool, float], in_reward: tuple[bool, float]) -> str:
    """A command of verl with the switch and the coefficient of both KL penalties."""
    return (
        f"{VERL_COMMAND} {ACTOR}.use_kl_loss={in_loss[0]} {ACTOR}.kl_loss_coef={in_loss[1]}"
        f" algorithm.use_kl_in_reward={in_reward[0]} algorithm.kl_ctrl.kl_coef={in_reward[1]}"
    )


def _clipped_by_nemo_rl(width: float, **loss: object) -> dict[str, Any]:
    """NeMo RL with a clip range and four updates on a rollout."""
    table = {"ratio_clip_min": width, "ratio_clip_max": width, **loss}
    return _changed(NEMO_RL, policy__train_global_batch_size=128, loss_fn=table)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        (
            CUT,
            _changed(GRPO, use_vllm=True, top_p=0.9, top_k=50),
            "warning: answers are sampled with top_p 0.9 and",
        ),
        (CUT, _changed(GRPO, use_vllm=True, min_p=0.1), "info: answers are sampled with min_p 0.1"),
        (CUT, SCRIPT.format("use_vllm=True, top_k=20"), "top_k 20"),
        (CUT, f"{SWIFT} --top_p 0.8 --rollout_importance_sampling_mode token_mask", "top_p 0.8"),
        (
            CUT,
            f"{VERL_COMMAND} actor_rollout_ref.rollout.top_p=0.7"
            " algorithm.rollout_correction.rollout_is=token",
            "rollout.top_p 0.7",
        ),
        # Without an engine, without its correction, or with the whole distribution there is no such ratio.
        (CUT, _changed(GRPO, top_p=0.9), ""),
        (
            CUT,
            _changed(GRPO, use_vllm=True, vllm_importance_sampling_correction=False, top_p=0.9),
            "",
        ),
        (CUT, _changed(GRPO, use_vllm=True, top_p=1.0, top_k=0, min_p=0), ""),
        (CUT, _changed(GRPO, use_vllm=True, top_k=-1), ""),
        (CUT, f"{SWIFT} --top_p 0.8", ""),
        (CUT, f"{VERL_COMMAND} actor_rollout_ref.rollout.top_p=0.7", ""),
        (LIMIT, _changed(GRPO, use_vllm=True, vllm_max_model_length=511), "error: the engine"),
        (
            LIMIT,
            _changed(GRPO, use_vllm=True, vllm_max_model_length=512),
            "the prompt takes a part",
        ),
        (LIMIT, _limits_of_nemo_rl(answers=2048, engine=2048), ""),
        (LIMIT, _limits_of_nemo_rl(answers=4096, engine=2048), "error: the engine"),
        (LIMIT, _changed(GRPO, use_vllm=True, vllm_max_model_length=1024), ""),
        (LIMIT, f"{SWIFT} --vllm_max_model_len 1024", "1024, and the prompt takes"),
        (LIMIT, f"{SWIFT} --vllm_max_model_len 4096", ""),
        (
            LIMIT,
            f"{VERL_COMMAND} data.max_prompt_length=1024 data.max_response_length=3072"
            " actor_rollout_ref.rollout.max_model_len=3500",
            "warning: the engine that samples ends at actor_rollout_ref.rollout.max_model_len 3500",
        ),
        (LIMIT, f"{OPENRLHF} --data.max_len 2048 --rollout.max_new_tokens 4096", "needs 4,096"),
        (LIMIT, f"{OPENRLHF} --data.max_len 8192 --rollout.max_new_tokens 4096", ""),
        (LIMIT, PRIME_RL.replace("2048", "8192"), "max_completion_tokens 8192 needs 8,192"),
        (LIMIT, PRIME_RL, ""),
        (LIMIT, f"seq_len = 1024\n{PRIME_RL}", "error: seq_len 1024 cuts a prompt with its answer"),
        (LIMIT, f"seq_len = 1024\n{PRIME_RL_ALONE}", "max_completion_tokens is 2048: the ends"),
        (
            LIMIT,
            PRIME_RL_ALONE.replace("group_size = 16", "seq_len = 2000"),
            "orchestrator.seq_len 2000",
        ),
        (
            LIMIT,
            f"seq_len = 512\n{PRIME_RL_ALONE.replace('group_size = 16', 'seq_len = 1024')}",
            "seq_len 1024",
        ),
        (
            LIMIT,
            f"seq_len = 1024\n{PRIME_RL_OLD}",
            "but orchestrator.sampling.max_tokens is 2048",
        ),
        (LIMIT, f"seq_len = 4096\n{PRIME_RL_ALONE}", ""),
        (LIMIT, f"seq_len = 2048\n{PRIME_RL_ALONE}", ""),
        (
            LIMIT,
            f"seq_len = 1024\n{PRIME_RL_ALONE.replace('group_size = 16', 'seq_len = 4096')}",
            "",
        ),
        (LIMIT, PRIME_RL_ALONE, ""),
        (
            LIMIT,
            f"seq_len = 1024\n{PRIME_RL_ALONE.replace('max_completion_tokens', 'min_tokens')}",
            "",
        ),
        (WEIGHTS, _changed(GRPO, reward_funcs=["a.b", "a.c"], reward_weights=[0, 0]), "is 0: all"),
        (WEIGHTS, _changed(GRPO, reward_funcs=["a.b", "a.c"], reward_weights=[1, 0]), ""),
        (WEIGHTS, f"{SWIFT} --reward_funcs accuracy format --reward_weights 1", "weights is 1"),
        (WEIGHTS, f"{SWIFT} --reward_funcs accuracy --reward_model m --reward_weights 1 2", ""),
        (GROUPS, f"{SWIFT} --gradient_accumulation_steps 3 --num_generations 16", "24 answers"),
        (GROUPS, f"{SWIFT} --gradient_accumulation_steps 2 --num_generations 16", ""),
        # A launch with another number of processes may make whole groups of it.
        (GROUPS, _changed(GRPO, num_generations=6, per_device_train_batch_size=4), ""),
        (
            GROUPS,
            _changed(GRPO, generation_batch_size=64, steps_per_generation=4),
            "are both set",
        ),
        (GROUPS, _changed(GRPO, generation_batch_size=60), "60 answers"),
        (
            GROUPS,
            f"{VERL_COMMAND} data.train_batch_size=176"
            " actor_rollout_ref.actor.ppo_mini_batch_size=440",
            "an update takes 440 prompts",
        ),
        (
            GROUPS,
            f"{VERL_COMMAND} data.train_batch_size=176"
            " actor_rollout_ref.actor.ppo_mini_batch_size=440"
            " actor_rollout_ref.actor.use_dynamic_bsz=True",
            "",
        ),
        (SPREAD, SCRIPT.format("loss_type='dr_grpo', scale_rewards=True"), "scale_rewards is true"),
        (SPREAD, SCRIPT.format("loss_type='dr_grpo', scale_rewards=False"), ""),
        (
            SPREAD,
            f"{VERL_COMMAND} actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
            "norm_adv_by_std_in_grpo is true",
        ),
        (
            SPREAD,
            f"{VERL_COMMAND} actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm"
            " algorithm.norm_adv_by_std_in_grpo=False",
            "",
        ),
        (
            TWICE,
            _changed(
                VERL,
                algorithm__use_kl_in_reward=True,
                actor_rollout_ref__actor__use_kl_loss=True,
                actor_rollout_ref__actor__kl_loss_coef=0,
            ),
            "",
        ),
        (CORRECTION, f"{VERL_COMMAND} actor_rollout_ref.rollout.quantization=fp8", "is not set"),
        (CORRECTION, VERL_COMMAND, ""),
        (
            CORRECTION,
            f"{VERL_COMMAND} actor_rollout_ref.rollout.quantization=fp8"
            " algorithm.rollout_correction.rollout_is=token",
            "",
        ),
        (CORRECTION, _changed(GRPO, vllm_importance_sampling_correction=False), ""),
        (
            EXPLODES,
            _changed(NEMO_RL, grpo__normalize_rewards=True),
            "",
        ),
        ("unknown-setting", ONLINE, "max_new_tokenz is not a setting"),
        ("preference-beta-out-of-range", ONLINE, ""),
        ("unknown-setting", DISTILLED, "lmdba is not a setting"),
        (BONUS, _changed(GRPO, entropy_coef=0.05), "warning: entropy_coef is 0.05"),
        (BONUS, _changed(GRPO, entropy_coef=0.05, use_adaptive_entropy=True), ""),
        (BONUS, f"{OPENRLHF} --actor.entropy_coef 0.02", "warning: entropy_loss_coef is 0.02"),
        (BONUS, f"{VERL_COMMAND} actor_rollout_ref.actor.entropy_coeff=0.001", "info: "),
        (BONUS, f"{VERL_COMMAND} actor_rollout_ref.actor.entropy_coeff=0", ""),
        (RANGE, f"{OPENRLHF} --algo.kl.init_coef 5", "init_kl_coef is 5"),
        (RANGE, f"{OPENRLHF} --algo.kl.init_coef 0.01", ""),
        (RANGE, f"{VERL_COMMAND} actor_rollout_ref.rollout.temperature=0.1", "temperature is 0.1"),
        (RANGE, f"{SWIFT} --temperature 3", "temperature is 3"),
        (RANGE, f"{SWIFT} --temperature 0.9", ""),
        # `grouped-answers-cannot-differ` names it.
        (RANGE, f"{SWIFT} --temperature 0", ""),
        ("grouped-answers-cannot-differ", f"{SWIFT} --temperature 0", "temperature is 0"),
        (
            "grouped-answers-cannot-differ",
            PRIME_RL.replace("group_size = 16", "rollouts_per_example = 1"),
            "orchestrator.rollouts_per_example is 1",
        ),
        ("grouped-answers-cannot-differ", PRIME_RL.replace("group_size = 16\n", ""), ""),
        ("grouped-answers-cannot-differ", f"{OPENRLHF} --rollout.n_samples_per_prompt 1", "stops"),
        ("grouped-answers-cannot-differ", _changed(GRPO, num_generations=1), "stops at its start"),
        (
            "grouped-answers-cannot-differ",
            f"{OPENRLHF} --rollout.n_samples_per_prompt 1 --algo.advantage.estimator reinforce",
            "",
        ),
        (WARMUP, _verl(actor_lr_warmup_steps=40, steps=50), "warning: the warm-up of 40 steps"),
        (WARMUP, _verl(actor_lr_warmup_steps=4, steps=50), ""),
        (WARMUP, _verl(actor_lr_warmup_steps=40, steps=-1), ""),
        (WARMUP, _verl(actor_lr_warmup_steps=-1, lr_warmup_steps_ratio=0.9), "takes 90%"),
        (WARMUP, _verl(lr_warmup_steps_ratio=0.1, steps=50), ""),
        (WARMUP, f"{OPENRLHF} --lr_warmup_ratio 0.8", "takes 80%"),
        (WARMUP, f"{PRIME_RL}\n[trainer.scheduler]\nwarmup_steps = 20\n", "of 20 steps is as long"),
        (WARMUP, f"{PRIME_RL}\n[trainer.scheduler]\nwarmup_steps = 2\n", ""),
        (WARMUP, _warmup_of_nemo_rl(50), "the warm-up of 50 steps is longer than"),
        (WARMUP, _warmup_of_nemo_rl(5), ""),
        (OVERRULED, _kl_of_verl(in_loss=(False, 0.01), in_reward=(False, 0.05)), "warning: "),
        (OVERRULED, _kl_of_verl(in_loss=(False, 0.01), in_reward=(False, 0)), "info: "),
        ("grouped-answers-cannot-differ", f"{SWIFT} --num_generations 1 --teacher_model a/b", ""),
        (
            "grouped-answers-cannot-differ",
            "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo"
            " actor_rollout_ref.model.path=some/model distillation.enabled=True",
            "",
        ),
        (OVERRULED, _kl_of_verl(in_loss=(False, 0), in_reward=(False, 0)), ""),
        (OVERRULED, _kl_of_verl(in_loss=(True, 0.01), in_reward=(False, 0.01)), ""),
        (UPDATES, f"{VERL_COMMAND} data.train_batch_size=512 {MINI_BATCH}=4", "in 128 updates"),
        (UPDATES, f"{VERL_COMMAND} data.train_batch_size=512 {MINI_BATCH}=32", ""),
        (UPDATES, VERL_COMMAND, ""),
        (UPDATES, _changed(GRPO, steps_per_generation=96), "in 96 updates"),
        (UPDATES, _changed(GRPO, steps_per_generation=64, gradient_accumulation_steps=16), ""),
        (UPDATES, _changed(GRPO, generation_batch_size=512), ""),
        (UPDATES, SCRIPT.format("steps_per_generation=20, num_iterations=4"), "in 80 updates"),
        (UPDATES, SCRIPT.format("gradient_accumulation_steps=8, num_iterations=4"), ""),
        (UPDATES, f"{SWIFT} --steps_per_generation 80 {NO_ACCUMULATION}", "in 80 updates"),
        (UPDATES, f"{SWIFT} --steps_per_generation 80", ""),
        (UPDATES, f"{OPENRLHF} --rollout.batch_size 2048 --train.batch_size 128", "128 updates"),
        # A published recipe of PPO with OpenRLHF (SimpleRL) makes 64.
        (UPDATES, f"{OPENRLHF} --rollout.batch_size 1024 --train.batch_size 128", ""),
        (UPDATES, _changed(NEMO_RL, policy__train_global_batch_size=4), "in 128 updates"),
        (UPDATES, _changed(NEMO_RL, policy__train_global_batch_size=512), ""),
        (CLIP, f"{SWIFT} --steps_per_generation 4 --epsilon 3e-4", "warning: epsilon 0.0003 is"),
        (CLIP, f"{SWIFT} --steps_per_generation 4 --epsilon 0.2 --epsilon_high 0.28", ""),
        (CLIP, f"{SWIFT} --epsilon 3e-4 --epsilon_high 4e-4", ""),
        (CLIP, f"{SWIFT} --steps_per_generation 4 {SEQUENCE} --epsilon 3e-4", ""),
        (CLIP, f"{SWIFT} --steps_per_generation 4 {SEQUENCE}", "info: epsilon 0.2 is"),
        (CLIP, SCRIPT.format("num_iterations=2, epsilon=1e-3, epsilon_high=2e-3"), "warning: "),
        (CLIP, SCRIPT.format("num_iterations=2, epsilon=1e-3, epsilon_high=5.0"), ""),
        (CLIP, f"{VERL_COMMAND} {LOW}=0.0003 {HIGH}=0.0004", "warning: "),
        (CLIP, f"{VERL_COMMAND} {LOW}=0.0003 {HIGH}=0.0004 {LOSS_MODE}=gspo", ""),
        (CLIP, f"{VERL_COMMAND} {LOSS_MODE}=gspo", "info: "),
        (CLIP, f"{VERL_COMMAND} {LOW}=0.0003 {HIGH}=0.0004 {LOSS_MODE}=cispo", ""),
        (CLIP, f"{OPENRLHF} --actor.eps_clip 4e-4", "but policy_loss_type ppo clips"),
        (CLIP, f"{OPENRLHF} --actor.eps_clip_low_high 0.2 0.27", ""),
        (CLIP, _clipped_by_nemo_rl(3e-4), "warning: "),
        (CLIP, _clipped_by_nemo_rl(3e-4, sequence_level_importance_ratios=True), ""),
        (CLIP, _clipped_by_nemo_rl(0.2), ""),
        (SHORT, f"{VERL_COMMAND} actor_rollout_ref.model.path=Qwen/QwQ-32B", "is 512, but Qwen"),
        (SHORT, f"{VERL_COMMAND} data.max_response_length=512", ""),
        (SHORT, f"{SWIFT} --model Qwen/Qwen3-8B --max_completion_length 768", "is 768"),
        (SHORT, f"{SWIFT} --model Qwen/Qwen3-8B --max_completion_length 1024", ""),
        (
            SHORT,
            f"{SWIFT} --model Qwen/Qwen3-8B --max_completion_length 512 --enable_thinking false",
            "",
        ),
        (SHORT, f"{SWIFT} --model Qwen/Qwen3-8B-Base --max_completion_length 512", ""),
        (SHORT, f"{SWIFT} --model Qwen/Qwen3-4B-Instruct-2507 --max_completion_length 512", ""),
        (SHORT, _changed(GRPO, model_name_or_path="o/R1-Distill-Llama-8B"), "is 512"),
        (SHORT, _changed(GRPO, reward_funcs=["think_format_reward"]), ""),
        (
            SHORT,
            _changed(GRPO, reward_funcs=["think_format_reward"], max_completion_length=200),
            "think_format_reward asks for reasoning",
        ),
        (
            SHORT,
            _changed(
                GRPO,
                model_name_or_path="a/Qwen3-4B",
                chat_template_kwargs={"enable_thinking": False},
            ),
            "",
        ),
        (
            SHORT,
            f"{OPENRLHF} --actor.model_name_or_path a/Magistral-Small --rollout.max_new_tokens 800",
            "is 800",
        ),
        (SHORT, PRIME_RL.replace("some/model", "Qwen/Qwen3-4B-Thinking-2507"), ""),
        (
            SHORT,
            PRIME_RL.replace("some/model", "Qwen/Qwen3-4B-Thinking-2507").replace("2048", "512"),
            "is 512",
        ),
        (SHORT, "# writes no <think>\n" + PRIME_RL.replace("2048", "128"), ""),
        (SHORT, "## <think>\n" + PRIME_RL.replace("2048", "128"), "<think> asks for reasoning"),
        ("learning-rate-far-from-published", PRIME_RL.replace("3e-6", "3e-3"), "far above"),
        ("learning-rate-far-from-published", PRIME_RL, ""),
        ("unknown-setting", f"{SWIFT} --num_genrations 4", "did you mean num_generations?"),
        ("unknown-setting", f"{SWIFT} --brand_new_option 4", ""),
        (
            "unknown-setting",
            f"{VERL_COMMAND} actor_rollout_ref.rollout.temprature=0.8",
            "did you mean temperature?",
        ),
        # Tables that are filled freely, and settings of programs on verl, are no slips.
        (
            "unknown-setting",
            f"{VERL_COMMAND} +actor_rollout_ref.model.override_config.temprature=1 env.temprature=2",
            "",
        ),
        ("unknown-setting", f"{OPENRLHF} --rollout.temprature 0.8", "did you mean temperature?"),
        ("unknown-setting", OPENRLHF, ""),
    ],
)
def test_settings_of_reward_trainings(
    name: str, settings: dict[str, Any] | str, expected: str, tmp_path: Path
) -> None:
    found = _found(name, settings, tmp_path)
    assert [expected in message for message in found] == [True] * bool(expected), found


def test_places_of_toml_keys(tmp_path: Path) -> None:
    config = _config(PRIME_RL, tmp_path)
    assert (config.stack, config.spec.model) == ("prime-rl", "some/model")
    assert config.places["training.learning_rate"].line == 14
    assert config.key_places["orchestrator.train.sampling.max_completion_tokens"].line == 11


@pytest.mark.parametrize(
    ("functions", "is_found"), [("[right, tidy]", True), ("[right]", False), ("functions", False)]
)
def test_weights_and_functions_of_a_script(functions: str, is_found: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "from trl import GRPOConfig, GRPOTrainer\n"
        "args = GRPOConfig(output_dir='o', reward_weights=[1.0])\n"
        f"GRPOTrainer(model='m', reward_funcs={functions}, args=args, train_dataset=rows).train()\n",
        encoding="utf-8",
    )
    (config,) = extract_configs(read_module(path))
    assert bool(list(BY_NAME[WEIGHTS](config).findings())) == is_found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (PRIME_RL.replace("3e-6", "3e-4"), "set trainer.optim.lr to 5e-7"),
        (f"{VERL_COMMAND} actor_rollout_ref.actor.optim.lr=3e-4", "set actor_rollout_ref.actor.optim.lr to"),
        (_changed(GRPO, learning_rate=3e-4), "set learning_rate to 5e-7"),
        (f"{SWIFT} --tuner_type full --learning_rate 3e-4", "set learning_rate to 5e-7"),
    ],
)  # fmt: skip
def test_the_learning_rate_has_the_name_that_the_file_gives_it(
    settings: dict[str, Any] | str, expected: str, tmp_path: Path
) -> None:
    (found,) = BY_NAME["learning-rate-far-from-published"](_config(settings, tmp_path)).findings()
    assert expected in found.remedy


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (PRIME_RL_OLD.replace("[trainer", "temperature = 0.1\n[trainer"), "orchestrator.sampling.temperature is 0.1"),
        (PRIME_RL.replace("[trainer", "temperature = 0.1\n[trainer"), "orchestrator.train.sampling.temperature is 0.1"),
        (f"{VERL_COMMAND} actor_rollout_ref.rollout.temperature=0.1", "actor_rollout_ref.rollout.temperature is 0.1"),
        (_changed(GRPO, temperature=0.1), "temperature is 0.1"),
    ],
)  # fmt: skip
def test_a_setting_has_the_name_that_the_file_gives_it(
    settings: dict[str, Any] | str, expected: str, tmp_path: Path
) -> None:
    (found,) = BY_NAME[RANGE](_config(settings, tmp_path)).findings()
    assert found.message.startswith(expected)
    assert f"set {expected.removesuffix(' is 0.1')} to" in found.remedy


@pytest.mark.parametrize(
    ("settings", "is_seen_by_run"),
    [
        (PRIME_RL, False),
        (VERL_COMMAND, False),
        (SWIFT, False),
        (OPENRLHF, False),
        (_limits_of_nemo_rl(answers=2048, engine=4096), False),
        (GRPO, True),
    ],
)
def test_advice_to_run_is_given_where_run_judges_the_trainer(
    settings: dict[str, Any] | str, is_seen_by_run: bool, tmp_path: Path
) -> None:
    config = _config(settings, tmp_path)
    told = judge_settings(config, RunSpec(select=("CFG201",))).not_judged
    (advice,) = (one.unlock for one in told if one.what.startswith("training by"))
    assert ("truetune run" in advice) == is_seen_by_run
    assert ("truetune reward" in advice) != is_seen_by_run


def _not_judged(settings: dict[str, Any] | str, folder: Path) -> tuple[bool, str]:
    """(is it asked for, so that the exit code is 3; why) of what is not judged of a training by rewards."""
    told = judge_settings(_config(settings, folder), RunSpec(select=("CFG201",))).not_judged
    (part,) = (one for one in told if one.what.startswith("training by"))
    return part.asked, part.reason


@pytest.mark.parametrize(
    "settings",
    [
        GRPO,
        _changed(GRPO, loss_type="dr_grpo", output_dir="$HOME/out"),
        VERL_COMMAND,
        f"{VERL_COMMAND} data.train_files=$DATA/train.parquet actor_rollout_ref.model.path=$MODEL",
        OPENRLHF,
        SWIFT,
        PRIME_RL,
        _limits_of_nemo_rl(answers=2048, engine=4096),
    ],
)
def test_settings_that_are_all_known_are_judged_in_full(
    settings: dict[str, Any] | str, tmp_path: Path
) -> None:
    is_asked, reason = _not_judged(settings, tmp_path)
    assert (is_asked, reason.startswith("its settings were judged")) == (False, True)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (_changed(GRPO, loss_type="my_loss"), "no rule knows what loss_type my_loss does"),
        (_changed(GRPO, scale_rewards="{{ scale }}"), "the value of scale_rewards is not known"),
        (VERL_COMMAND.replace("=grpo", "=mine"), "no rule knows what algorithm.adv_estimator mine does"),
        (VERL_COMMAND.replace("=grpo", "=$ADV"), "the value of algorithm.adv_estimator is not known"),
        (f"{VERL_COMMAND} my_agent.turns=4", "adds settings that are not known here"),
        (f"{VERL_COMMAND} $MORE", "adds settings that are not known here"),
        (f'{PRIME_RL}\n[trainer.loss]\ntype = "custom"\nimport_path = "a.b"\n', "trainer.loss.type custom does"),
        (ONLINE, "a script builds its trainer"),
    ],
)  # fmt: skip
def test_settings_that_are_not_known_are_not_called_judged(
    settings: dict[str, Any] | str, reason: str, tmp_path: Path
) -> None:
    is_asked, told = _not_judged(settings, tmp_path)
    assert is_asked
    assert reason in told


BUFFER = "overlong-buffer-does-not-fit-the-answers"
REWARD_KWARGS = "reward.reward_kwargs"


def _buffer(length: int, told: int | None, limit: int, table: str = REWARD_KWARGS) -> str:
    """A command of verl with an overlong buffer."""
    words = f" +{table}.overlong_buffer_cfg.enable=True +{table}.overlong_buffer_cfg.len={length}"
    if told is not None:
        words += f" +{table}.max_resp_len={told}"
    return f"{VERL_COMMAND} data.max_response_length={limit}{words}"


@pytest.mark.parametrize(
    ("command", "severity", "expected"),
    [
        (_buffer(4096, 4096, 4096), "error", "every answer is punished from its first token"),
        (_buffer(8192, 4096, 4096), "error", "verl stops at its start"),
        (_buffer(1024, None, 4096), "error", "max_resp_len is not set"),
        (
            _buffer(1024, 2048, 4096),
            "warning",
            "answers of 2,048 to 4,096 tokens are punished by more",
        ),
        (_buffer(1024, 8192, 4096), "warning", "no answer is long enough to be punished"),
        (
            _buffer(1024, 4500, 4096, "reward_model.reward_kwargs"),
            "warning",
            "a part of the penalty",
        ),
        (
            f"{VERL_COMMAND} data.max_response_length=512 +reward_model.overlong_buffer.enable=True"
            " +reward_model.overlong_buffer.len=512",
            "error",
            "every answer is punished",
        ),
    ],
)
def test_an_overlong_buffer_that_is_for_another_limit(
    command: str, severity: str, expected: str, tmp_path: Path
) -> None:
    (found,) = _found(BUFFER, command, tmp_path)
    assert found.startswith(f"{severity}: ")
    assert expected in found


@pytest.mark.parametrize(
    "command",
    [
        _buffer(1024, 4096, 4096),
        _buffer(4096, 4096, 4096).replace("enable=True", "enable=False"),
        _buffer(4096, 4096, 4096).replace(".len=4096", ".len=$BUFFER"),
        _buffer(1024, 4096, 4096).replace("max_resp_len=4096", "max_resp_len=$LIMIT"),
        VERL_COMMAND,
    ],
)
def test_a_fitting_or_unknown_buffer_gets_no_finding(command: str, tmp_path: Path) -> None:
    assert _found(BUFFER, command, tmp_path) == []
