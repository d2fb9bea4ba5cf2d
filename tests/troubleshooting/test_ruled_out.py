"""Causes that the facts of a project rule out, and those that they leave."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from truetune.checks.explaining.guides import GUIDES
from truetune.checks.rule_catalogue import all_rules
from truetune.logs.run_log import Curve, RunLog
from truetune.troubleshooting.project_evidence_for_ruling_out_causes import read_evidence
from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.rank_causes import _causes_of_rules
from truetune.troubleshooting.rule_out_causes import RULES, find_reason_against

TINY = "a tiny batch with many accumulation steps, although memory is free"
PADDED = "rows are padded to max_length: short rows are computed as the longest"
RATE = "the learning rate destroyed the weights"
SCHEDULE = "a scheduler that is stepped by every process"
RISES = "the evaluation loss rises again: the run continued past its best step"
WRITES = "every process writes the same checkpoint file"
ALL_ROWS = "every process of a DistributedDataParallel loop goes through all rows"
THINKS = "the model reasons before each answer (<think>)"
TEXTS = "kTO's labels are text or numbers, but trainers expect true and false"
KL = "kTO's mismatched batch contains the matched pairs themselves"
BF16 = "steps are rounded away: all weights in bfloat16, at rates of 5e-7 to 1e-6"
MERGED = "the adapter of the DPO was trained on the merged SFT model and is put on the hub's base"
ALIVE = "keep_alive is 0 (or OLLAMA_KEEP_ALIVE=0): Ollama unloads the model"
BASE = "the evaluation names the base twice: lm_eval's model_args have no peft="
WHOLE = "embeddings and head are trained whole (modules_to_save, lora_modules_to_save)"
FROZEN = "the adapter is frozen"
ONE = "the server answers one request at a time: OLLAMA_NUM_PARALLEL=1"


def reason(cause: str, text: str, *logs: RunLog, question: str = "it is bad") -> str:
    texts = [ProjectText(Path("train.py"), text, True)]
    return find_reason_against(cause, read_evidence(question, texts, logs))


def log(name: str, values: list[float]) -> RunLog:
    curve = Curve(np.arange(len(values), dtype=float), np.asarray(values))
    return RunLog("run", "JSONL", curves={name: curve})


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (TINY, "per_device_train_batch_size=16,\ngradient_accumulation_steps=32"),
        (TINY, "micro_batch_size: 2\ngradient_accumulation_steps: 4"),
        (PADDED, "trainer = GRPOTrainer(model=m)\nmax_prompt_length=512"),
        (SCHEDULE, "trainer = CPOTrainer(args=args)\nlr_scheduler_type: cosine"),
        (WRITES, "if accelerator.is_main_process:\n    model.save_pretrained('out')"),
        (WRITES, "SFTTrainer(model=m).train()"),
        (ALL_ROWS, "model, loader = accelerator.prepare(model, loader)"),
        (ALL_ROWS, "sampler = DistributedSampler(rows)"),
        (THINKS, "base_model: Qwen/Qwen2.5-7B-Instruct"),
        (TEXTS, "rows.append({'label': bool(row['up'])})"),
        (TEXTS, "frame['label'] = frame['stars'] >= 4"),
        (KL, "trainer = KTOTrainer(model=m)"),
        (BF16, "peft_config=LoraConfig(r=8)\nlearning_rate=5e-7"),
        (BF16, "learning_rate: 2e-5"),
        (MERGED, "model_name_or_path: org/base-7b\nexport_dir: merged"),
        (ONE, "ollama run mine"),
        (BASE, "lm_eval --model_args pretrained=org/m,dtype=bfloat16,peft=out/checkpoint-200"),
        (BASE, "hf (pretrained=org/m,peft=/runs/a), gen_kwargs: (None)"),
    ],
)
def test_facts_rule_a_cause_out(cause: str, text: str) -> None:
    assert reason(cause, text)


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (TINY, "per_device_train_batch_size=1,\ngradient_accumulation_steps=64"),
        (TINY, "train()"),
        (PADDED, "Trainer(model=m)\ntok(x, padding='max_length')"),
        (PADDED, "loss.backward()"),
        (SCHEDULE, "loss.backward()\nscheduler.step()"),
        (WRITES, "loss.backward()\ntorch.save(model.state_dict(), 'm.pt')"),
        (ALL_ROWS, "model = DistributedDataParallel(model)\nloss.backward()"),
        (THINKS, "base_model: Qwen/Qwen3-8B"),
        (THINKS, "base_model: org/ours\ntext = '<think>'"),
        (THINKS, "base_model: ./runs/merged-7b"),
        (THINKS, "model_name_or_path: org/base-7b\nmodel: saves/sft"),
        (TEXTS, "rows.append({'label': row['label']})"),
        (KL, "loss.backward()"),
        (BF16, "learning_rate: 5e-7\nbf16: true"),
        (MERGED, "model_name_or_path: ./sft-merged"),
        (ONE, "Environment=OLLAMA_NUM_PARALLEL=1"),
        (BASE, "lm_eval --model_args pretrained=org/m,dtype=bfloat16"),
        (BASE, "from peft import LoraConfig"),
    ],
)
def test_other_facts_leave_it(cause: str, text: str) -> None:
    assert not reason(cause, text)


def test_a_loss_that_falls_and_one_that_climbs() -> None:
    falling = [2 - n / 40 for n in range(40)]
    assert reason(RATE, "", log("loss", falling))
    assert not reason(RATE, "", log("loss", [*falling[:10], *[9.0] * 30]))
    assert not reason(RATE, "")


def test_an_evaluation_loss_that_falls_and_one_that_rises() -> None:
    assert reason(RISES, "", log("eval_loss", [0.864, 0.842]))
    assert not reason(RISES, "", log("eval_loss", [0.8, 0.7, 0.9]))


@pytest.mark.parametrize(
    "question", ["only 0.4 rows per second with vLLM", "3 answers per minute", "ten clients wait"]
)
def test_a_throughput_leaves_the_server_in_doubt(question: str) -> None:
    assert not reason(ONE, "ollama run mine", question=question)


def test_the_speed_of_one_answer_is_no_throughput() -> None:
    assert reason(ONE, "ollama run mine", question="it writes 3.7 tokens per second")


def test_several_users_leave_the_server_in_doubt() -> None:
    assert not reason(ONE, "ollama run mine", question="slow with ten users")


def test_each_row_is_about_a_cause() -> None:
    causes = [cause for guide in GUIDES for cause in guide.causes]
    causes += [cause for _, _, cause in _causes_of_rules()]
    texts = [f"{cause.text}\n{cause.seen}" for cause in causes]
    assert all_rules()
    for row in RULES:
        assert any(row.words.search(text) for text in texts), row.words.pattern


PROMPTS = "prompts padded to max_length: each short prompt is computed as the longest that may be"
CARD = "the card has no fast bfloat16 (T4, V100, RTX 20): load in float16"
MAPPED = "device_map='auto' on several GPUs: layers run one GPU after another"
ON_CPU = "the model was never moved to the GPU, and runs on the CPU: no device_map, no .to('cuda')"
LOADER = "rows are tokenized, or images decoded, in the data loader of one process"
CLIENT = "the client asks the server for the base by its name, and not for the adapter"
SERVE = "vllm serve org/m --enable-lora --lora-modules dpo=work/dpo\n"


@pytest.mark.parametrize(
    ("cause", "question", "text", "is_out"),
    [
        (PROMPTS, "training is slow, each step takes 26 seconds", "x", True),
        (PROMPTS, "fine-tuning runs at 30 s/it", "x", True),
        (PROMPTS, "generation after training is slow", "x", False),
        (PROMPTS, "answers take 40 seconds", "x", False),
        (PROMPTS, "evaluation during training is slow", "x", False),
        (THINKS, "training of Qwen3 is slow", "model: Qwen/Qwen3-8B", True),
        (THINKS, "the model answers slowly", "model: Qwen/Qwen3-8B", False),
        (CARD, "slow on an H100", "bf16: true", True),
        (CARD, "it is slow", "device: NVIDIA A100-SXM4-80GB", True),
        (CARD, "slow on a T4", "# an A100 before", False),
        (CARD, "slow on Colab, with an A100 it is not", "bf16: true", False),
        (CARD, "it is slow", "bf16: true", False),
        (MAPPED, "slow", "tensor_parallel_size=1, device_config=cuda", True),
        (MAPPED, "slow", "tensor_parallel_size=1\ndevice_map='auto'", False),
        (MAPPED, "slow", "tensor_parallel_size=2", False),
        (ON_CPU, "slow", "tensor_parallel_size=1, device_config=cuda", True),
        (ON_CPU, "slow", "device_config=cpu", False),
        (LOADER, "slow", "DataLoader(rows, num_workers=6)", True),
        (LOADER, "slow", "dataloader_num_workers: 4", True),
        (LOADER, "slow", "DataLoader(rows, num_workers=0)", False),
        (LOADER, "slow", "DataLoader(rows)", False),
        (CLIENT, "bad", SERVE + 'r = client.chat.completions.create(\n    model="dpo",\n)', True),
        (CLIENT, "bad", SERVE + '    model="org/m",', False),
        (CLIENT, "bad", '    model="dpo",', False),
    ],
)
def test_causes_of_another_phase_or_card(
    cause: str, question: str, text: str, is_out: bool
) -> None:
    assert bool(reason(cause, text, question=question)) == is_out


NO_LABEL = "no token has a label: the loss is 0 or NaN"
UNTRAINABLE = "nothing is trainable: an adapter that was loaded frozen"
ENDED = "the schedule has ended, or never leaves its warm-up"
SCALED = "the adapter is scaled away: lora_alpha far below its rank"
SLOW = "the learning rate is far too small"
RISING_RATE = [i * 1e-5 for i in range(20)]
COSINE = [1e-5, 1e-4, *(1e-4 * (1 - i / 20) for i in range(1, 20)), 0.0]


def two_curves(loss: list[float], norms: list[float]) -> RunLog:
    steps = np.arange(len(loss), dtype=float)
    curves = {"loss": Curve(steps, np.asarray(loss)), "grad_norm": Curve(steps, np.asarray(norms))}
    return RunLog("run", "JSONL", curves=curves)


def test_a_loss_with_gradients_rules_out_that_nothing_is_learned_from() -> None:
    sound = two_curves([2.0] * 20, [1.5] * 20)
    assert reason(NO_LABEL, "", sound)
    assert "1.5" in reason(UNTRAINABLE, "", sound)
    assert not reason(NO_LABEL, "", two_curves([0.0] * 20, [1.5] * 20))
    assert not reason(NO_LABEL, "", two_curves([2.0] * 20, [0.0] * 20))
    assert not reason(UNTRAINABLE, "", two_curves([2.0] * 20, [0.0] * 20))
    assert not reason(UNTRAINABLE, "", log("loss", [2.0] * 20))


def test_a_rate_that_lives_rules_out_a_schedule_that_ended() -> None:
    assert reason(ENDED, "", log("learning_rate", COSINE))
    assert not reason(ENDED, "", log("learning_rate", RISING_RATE))
    assert not reason(ENDED, "", log("learning_rate", [1e-4] * 5 + [0.0] * 15))
    assert not reason(ENDED, "lr_scheduler_type: cosine")


@pytest.mark.parametrize(
    ("text", "is_ruled_out"),
    [
        ("LoraConfig(r=16, lora_alpha=32)", True),
        ("lora_r: 64\nlora_alpha: 16", True),
        ("lora_rank: 8\nlora_alpha: 16", True),
        ('{"r": 16, "lora_alpha": 16}', True),
        ("LoraConfig(r=256, lora_alpha=1)", False),
        ("lora_r: 128\nlora_alpha: 8", False),
        ("lora_alpha: 16", False),
        ("lora_alpha=args.alpha, r=16", False),
    ],
)
def test_a_usual_scale_rules_out_that_the_adapter_is_scaled_away(
    text: str, is_ruled_out: bool
) -> None:
    assert bool(reason(SCALED, text)) is is_ruled_out


@pytest.mark.parametrize(
    ("text", "is_ruled_out"),
    [
        ("learning_rate=2e-4\nLoraConfig()", True),
        ("learning_rate: 1e-5", True),
        ("learning_rate: 1e-6\nadapter: lora", False),
        ("learning_rate: 1e-8", False),
        ("warmup: 2", False),
    ],
)
def test_a_usual_rate_rules_out_one_that_is_far_too_small(text: str, is_ruled_out: bool) -> None:
    assert bool(reason(SLOW, text)) is is_ruled_out


@pytest.mark.parametrize(
    ("text", "is_out"),
    [
        ("lora = LoraConfig(r=16, target_modules=['q_proj'])", True),
        ("finetuning_type: lora\nlora_target: all", True),
        ("adapter: lora\nlora_r: 8", True),
        ("LoraConfig(modules_to_save=['lm_head'])", False),
        ("adapter: lora\nlora_modules_to_save: [embed_tokens]", False),
        ("finetuning_type: lora\nadditional_target: embed_tokens", False),
        ("model.train()", False),
    ],
)
def test_an_adapter_without_saved_modules_trains_no_embeddings(text: str, is_out: bool) -> None:
    assert bool(reason(WHOLE, text)) is is_out


def test_an_adapter_whose_loss_fell_is_not_frozen() -> None:
    lora, fell = "peft_config = LoraConfig(r=8)", [2.0 - 0.1 * step for step in range(15)]
    assert reason(FROZEN, lora, log("loss", fell))
    assert not reason(FROZEN, lora, log("loss", [0.6931] * 15))
    assert not reason(FROZEN, lora, log("loss", [2.0 - 0.01 * step for step in range(15)]))
    assert not reason(FROZEN, lora)
    # of two trainings nobody knows which one is meant
    assert not reason(FROZEN, lora, log("loss", fell), log("loss", [0.6931] * 15))


MERGES = "a merge loads the whole base on the GPU: merge on the CPU"
INIT = "the model is loaded before ZeRO-3 is known, whole in each process (zero.Init)"
FIRST = "every process puts its model on GPU 0: no torch.cuda.set_device"
FULL = "[rank{0}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB. GPU {0} has a total capac\n"


@pytest.mark.parametrize(
    ("cause", "text", "is_out"),
    [
        (MERGES, "m = load(base, device_map='cpu')\nm.merge_and_unload()", True),
        (MERGES, "m = load(base, device_map='auto')\nm.merge_and_unload()", False),
        (MERGES, "a = load(base, device_map='cpu')\nb = load(base, device_map={'': 0})", False),
        (INIT, "finished initializing model - num_params = 339, num_elems = 7.62B", True),
        (INIT, "zero3_init_flag: true", False),
        (FIRST, FULL.format(2) + FULL.format(0), True),
        (FIRST, FULL.format(0) + FULL.format(0), False),
        (WHOLE, '"peft_type": "LORA",\n"modules_to_save": null', True),
        (WHOLE, '"peft_type": "LORA",\n"modules_to_save": ["lm_head"]', False),
    ],
)
def test_what_files_say_of_memory_rules_causes_out(cause: str, text: str, is_out: bool) -> None:
    assert bool(reason(cause, text)) is is_out


FORM = "the reward pays for the form alone, or the form pays far more than the right result"
TIES = "many pairs are ties: both answers have the same score"
PREFIX = "a long prompt is computed again for each request: the server does not keep the cache"
LAYERS = "layers that do not fit the GPU are left on the CPU or offloaded: a smaller quantization"
STOPS = "the server does not end answers where the model does"
PAIRS = '{"prompt": "a", "chosen": "b", "rejected": "c"'


@pytest.mark.parametrize(
    ("cause", "text", "is_out"),
    [
        (TIES, PAIRS + "}", True),
        (TIES, PAIRS + ', "score_chosen": 3, "score_rejected": 3}', False),
        (
            TIES,
            'row = {"chosen": best, "rejected": worst}  \nbest = max(answers, key=rating)',
            False,
        ),
        (TIES, "nothing of pairs", False),
        (PREFIX, "  - --enable-prefix-caching", True),
        (PREFIX, "LLM(model, enable_prefix_caching=True)", True),
        (PREFIX, "LLM(model, enable_prefix_caching=False)", False),
        (PREFIX, "GPU KV cache usage: 3.1%, Prefix cache hit rate: 41.8%", True),
        (PREFIX, "GPU KV cache usage: 3.1%, Prefix cache hit rate: 0.0%", False),
        (LAYERS, "PARAMETER num_ctx 131072", True),
        (LAYERS, "PARAMETER num_ctx 8192", False),
        (STOPS, 'PARAMETER stop "<|eot_id|>"', True),
        (STOPS, "PARAMETER temperature 0.2", False),
    ],
)
def test_what_files_say_of_pairs_and_servers(cause: str, text: str, is_out: bool) -> None:
    assert bool(reason(cause, text)) is is_out


def log_of(**curves: list[float]) -> RunLog:
    """A log with these curves."""
    return RunLog(
        "log",
        "JSONL",
        curves={
            name: Curve(np.arange(len(values), dtype=float), np.array(values))
            for name, values in curves.items()
        },
    )


def test_a_reward_near_zero_pays_for_no_form() -> None:
    assert reason(FORM, "", log_of(reward=[0.0, 0.01, 0.008] * 10))
    assert not reason(FORM, "", log_of(reward=[0.1, 0.5, 0.98] * 10))
    assert not reason(FORM, "")


def test_any_gradient_shows_that_the_adapter_is_not_frozen() -> None:
    assert reason(FROZEN, "", log_of(grad_norm=[0.0, 0.0, 0.02] * 10))
    assert not reason(FROZEN, "", log_of(grad_norm=[0.0] * 30))


SUMMED = "the logged loss is multiplied by the accumulation steps (transformers 4.46.0)"
SINGLE = "one row is a step, and each step is logged: the loss of single rows differs"
LARGE = "the learning rate is far too large"
COARSE = "the adapter was merged into 4-bit weights, or a quantized export is too coarse"


@pytest.mark.parametrize(
    ("cause", "text", "logs"),
    [
        (SUMMED, "", [log("loss", [2.28] * 20)]),
        (SINGLE, "per_device_train_batch_size=4,\ngradient_accumulation_steps=2,\nlogging_steps=2", []),
        (LARGE, "lr = 1e-5", [log("loss", [12.0 - n / 4 for n in range(20)])]),
        (COARSE, "export_dir: models/merged\nexport_size: 5", []),
    ],
)  # fmt: skip
def test_losses_rates_and_exports_that_can_not_be_it(
    cause: str, text: str, logs: list[RunLog]
) -> None:
    assert reason(cause, text, *logs)


@pytest.mark.parametrize(
    ("cause", "text", "logs"),
    [
        (SUMMED, "", [log("loss", [36.0] * 20)]),
        (SUMMED, "", []),
        (SINGLE, "per_device_train_batch_size=1,\nlogging_steps=1", []),
        (SINGLE, "per_device_train_batch_size=8\nper_device_train_batch_size=1", []),
        (LARGE, "lr = 2e-4", [log("loss", [12.0 - n / 4 for n in range(20)])]),
        (LARGE, "lr = 1e-5", [log("loss", [2.0 + n / 4 for n in range(20)])]),
        (COARSE, "load_in_4bit=True", []),
        (COARSE, "python convert_hf_to_gguf.py out", []),
    ],
)  # fmt: skip
def test_losses_rates_and_exports_that_may_be_it(cause: str, text: str, logs: list[RunLog]) -> None:
    assert not reason(cause, text, *logs)
