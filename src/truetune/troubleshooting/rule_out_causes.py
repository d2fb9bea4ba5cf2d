"""Rules causes out by the facts of a project: what its settings, scripts and logs say against them.

One row of `RULES` tells a cause by words of its text, and when it can't be: a loss that never rose, a batch that is not
small, a trainer that does itself what a loop forgets. A row reads the lines of all files, at the logs and at what
the user says. The trade-off: lines are not run, so that a row rules a cause out only where every line that sets the
thing speaks against it.
"""

from __future__ import annotations

import re

import numpy as np

from truetune.checks.find_only_gpu_named_in_files import GPU_WITHOUT_BFLOAT16
from truetune.checks.hyperparameter_limits import LOWEST_SCALE
from truetune.troubleshooting.project_evidence_for_ruling_out_causes import (
    MIN_LOSSES,
    NUMBER,
    Evidence,
    RuleOutRow,
    make_rule_out_row,
)
from truetune.troubleshooting.what_causes_need_and_what_denies_them import ROWS as NEEDS

SMALL_BATCH = 4
"""Rows of a GPU, from which on a batch is not tiny"""
MANY_STEPS = 8
"""Of accumulation"""
RISE = 1.1
"""Times its start, from which on a loss has climbed"""
LATE_RISE = 1.02
"""Times its least value, from which on an evaluation loss has risen again"""
LEARNED = 0.8
"""Of its start, below which a loss shows that something was trained. Chosen, not measured: noise of records moves a
mean of a fifth of the run by a few per cent"""
QUARTERS = 4
"""Parts of a curve, of which the first and the last are compared"""
MIN_FITTED_STEPS = 10
"""Steps after which the optimizer's states were there. Chosen, not measured: one makes them, a counter may run ahead"""
HIGH_RATE = 1e-5
"""From which on a step is not rounded away in bfloat16"""
MAX_LOADS = 2
"""Lines that one load of a model writes"""
BATCH = re.compile(
    rf"(?:per_device_train_batch_size|micro_batch_size|train_micro_batch_size_per_gpu)[\"']?\s*[:= ]{NUMBER}"
)
ACCUMULATION = re.compile(
    rf"(?:gradient_accumulation(?:_steps)?|grad_accum(?:_steps)?)[\"']?\s*[:= ]{NUMBER}"
)
RATE = re.compile(rf"\b(?:learning_rate|lr)[\"']?\s*[:= ]{NUMBER}")
MODEL = re.compile(
    r"\b(?:model_name_or_path|base_model|model_name|model_id|MODEL\w{0,20}|model)[\"']?\s*[:=]\s*[\"']?([\w./~-]{3,200})"
)
FIXED_PADDING = re.compile(
    r"padding\s*[=:]\s*[\"']max_length|pad_to_max_length|pad_to_sequence_len|pad_to_multiple_of|\.pad\(|F\.pad|new_full"
)
OWN_STEP = re.compile(r"(?:sched\w*|lr_\w+)\.step\(")
GUARDED = re.compile(
    r"is_(?:local_)?main_process|is_world_process_zero|\brank\s*==\s*0|local_rank\s*(?:==\s*0|in)"
    r"|if not rank\b|is_master|save_state\("
)
CLASSIFIER_LOAD = re.compile(r"ForSequenceClassification\.from_pretrained\(")
PAD_OF_TOKENIZER = re.compile(
    r"\bpad_token_id\s{0,4}=\s{0,4}[\w.]{0,40}?(?:tok\w{0,20}|processor|processing_class)\.pad_token_id"
)
SAVES = re.compile(r"save_pretrained\(|torch\.save\(|save_model\(")
SHARED_OUT = re.compile(
    r"\.prepare\(|DistributedSampler|split_dataset_by_node|StatefulDataLoader|setup_dataloaders"
)
THINKS = re.compile(
    r"<think>|enable_thinking|reasoning|qwen3|qwq|\br1\b|deepseek|gpt-oss|magistral|thinking",
    re.IGNORECASE,
)
LABEL_IS_BOOLEAN = re.compile(
    r"[\"']?label[\"']?\]?\s*[:=]\s*[^,#]{0,80}(?:\bbool\(|[<>=!]=|[<>]|\bnot\b|\bin\b|\bTrue\b|\bFalse\b|startswith\()|astype\(bool"
)
ADAPTER = re.compile(
    r"LoraConfig|peft_config|get_peft_model|finetuning_type\W+lora|^\s*adapter\s*:|use_peft"
)
SAVED_ADAPTER = re.compile(r"[\"']peft_type[\"']\s*:")
NOTHING_SET = re.compile(r"modules_to_save[\"']?\s*[:=]\s*(?:null|None|\[\s*\]|~)")
CPU_MAP = re.compile(r"device_map[\"']?\s*[:=]\s*[\"']cpu[\"']")
MADE_IN_PARTS = re.compile(r"finished initializing model - num_params = [1-9]")
"""DeepSpeed prints it where its zero.Init made the model (partition_parameters.py)"""
FULL_GPU = re.compile(r"CUDA out of memory.{0,80}\bGPU (\d{1,2}) has a total capac")
LAYER_NUMBERS = re.compile(
    r"layers_to_transform|layers_pattern|freeze_(?:trainable_)?layers|num_layer_trainable|unfrozen_parameters"
    r"|(?:layers|blocks|\bh)\\?\.(?:\d|[\[({\\])|\.layers\[|\.h\[|range\(|layer_idx|layer_id|layer_num"
)
"""Lines that choose layers by their numbers, or may"""
DATASET_NAME = re.compile(r"^\s*(?:dataset|- path)\s*:\s*[\"']?([\w./,\- ]{2,200})")
"""What settings of LLaMA-Factory and Axolotl train"""
DEMO_DATA = re.compile(
    r"\bidentity\b|demo|alpaca|guanaco|GPT4-LLM|FineTome|pirate-ultrachat|SlimOrca|orca_dpo|tiny-shakespeare"
)
"""Data sets of their examples, as of `demo-data-trained-own-rows-unused`"""
WHOLE_MODULES = re.compile(
    r"modules_to_save|additional_target|embed_tokens|lm_head|\bwte\b|train_embeddings|trainable_token"
)
SWITCHES_TRANSPORT = re.compile(r"NCCL_(?:IB_DISABLE|P2P_DISABLE|P2P_LEVEL|SHM_DISABLE|NET)\b")
SHOWS_LAUNCH = re.compile(r"NCCL INFO|\bsrun\b|\btorchrun\b|accelerate launch|mpirun")
KEPT_ALIVE_ZERO = re.compile(r"keep_?alive\W{1,4}0\b", re.IGNORECASE)
MODEL_LOADS = re.compile(
    r"loaded meta data with|starting runner|llama runner started", re.IGNORECASE
)
ONE_AT_A_TIME = re.compile(
    r"OLLAMA_NUM_PARALLEL(?:=|: )[\"']?1\b|max[-_]num[-_]seqs\W{1,3}1\b|^(?!.*runner).*(?:-np|--parallel)\W{1,2}1\b"
)
SEVERAL_USERS = re.compile(
    r"users|parallel|concurren|requests|throughput|load\b|queue|wait|clients|(?<!tokens )per (?:second|minute|hour)",
    re.IGNORECASE,
)
ADAPTER_OF_LM_EVAL = re.compile(r"\bpretrained=[^\s,]+,(?:[^\s]*,)?peft=\S")
MERGED = re.compile(r"merge|export", re.IGNORECASE)
ABOUT_TRAINING = re.compile(
    r"\b(?:training|trains?|fine-?tuning|epochs?)\b|\bsteps? takes?|\bs/it\b|\bseconds (?:a|per|for a) (?:step|batch)",
    re.IGNORECASE,
)
ABOUT_ANSWERS = re.compile(
    r"generat|inference|\banswers?\b|\bserv|\btokens? (?:a|per)|predict|evaluat|sampl"
    r"|rollout|completion|\bafter (?:the )?training",
    re.IGNORECASE,
)
"""What may be slow besides the steps of a training"""
NEWER_CARD = re.compile(
    r"\b(?:[ABH]\d{3}|H20|GB200|L40S?|L4|A10G?|A40|A30|RTX[ -]?[3-5]0\d0|RTX A\d{4})\b"
)
"""Cards of NVIDIA since Ampere"""
OLD_CARD = re.compile(rf"{GPU_WITHOUT_BFLOAT16.pattern}|colab|kaggle", re.IGNORECASE)
"""Cards before Ampere, and machines that mostly have one"""
ONE_SHARD = re.compile(r"tensor_parallel_size['\"]?\s?[=:]\s?1\b")
DEVICE_MAP = re.compile(r"device_map")
ON_GPU = re.compile(r"device_config['\"]?\s?[=:]\s?['\"]?cuda|\bdevice: cuda:\d|GPU KV cache size")
ON_CPU = re.compile(r"device_config['\"]?\s?[=:]\s?['\"]?cpu|[=:( ]['\"]cpu['\"]|offload")
WORKERS = re.compile(r"\b(?:dataloader_)?num_workers[\"']?\s*[:=]\s*(\d{1,3})\b")
LORA_MODULE = re.compile(r"--lora-modules(?:=|\s+)[\"']?([\w.-]{1,100})=")
ASKED_MODEL = re.compile(r"^\s*(?:\w.{0,80}create\(.{0,80})?\bmodel=[\"']([\w./:-]{1,200})[\"']")
LOCAL_PATH = re.compile(r"[./~]|(?:out|outputs?|saves|models?|runs?|checkpoints?)(?:/|$)")
"""How names of models begin that are folders"""


# Chosen, not measured: in float16 the first steps, and some later, are skipped while the scale is looked for.
MIN_MOVED_SHARE = 0.8
"""Share of the logged gradient norms that are above 0, where weights are trained"""
MAX_UNPAID_REWARD = 0.1
"""Of a reward, up to which nothing is paid. Chosen, not measured: rewards of form and result are of 0.1 to 1 each"""
PAIR_OF_ANSWERS = re.compile(r"[\"']?chosen[\"']?\s*[:=]|[\"']rejected[\"']")
SCORE = re.compile(
    r"(?<!rewards/)(?:score|rating|stars|grade|upvote|votes|judge|quality|margin[\"'])s?",
    re.IGNORECASE,
)
PREFIX_CACHE = re.compile(r"enable[-_]prefix[-_]caching(?!\W{1,3}(?:[Ff]alse|0\b))")
PREFIX_HITS = re.compile(rf"Prefix cache hit rate:\s*{NUMBER}%")
CONTEXT = re.compile(
    rf"\b(?:num_ctx|NUM_CTX|n_ctx|OLLAMA_CONTEXT_LENGTH)\b[\"']?\s*[:= ]\s*{NUMBER}"
)
LONG_CONTEXT = 32_768
"""Tokens from which the cache of one sequence takes 4 GiB and more in a model of 8B (128 KiB a token)"""
STOP_SETTING = re.compile(r"^\s*PARAMETER\s+stop\s", re.IGNORECASE)
ALPHA = re.compile(rf"\blora_alpha[\"']?\s*[:= ]{NUMBER}|\balpha[\"']?\s*[:=]{NUMBER}")
RANK = re.compile(
    rf"\b(?:lora_r|lora_rank|lora_dim)[\"']?\s*[:= ]{NUMBER}|(?<![\w.])r[\"']?\s*[:=]{NUMBER}"
)
ORDINARY_LOSS = 5.0
"""Below which a loss of tokens is that of one batch: two that are summed begin there at 2.5 each"""
LOGGING_STEPS = re.compile(rf"\blogging_steps[\"']?\s*[:= ]{NUMBER}")
MANY_ROWS = 8
"""Rows of a record from which its loss is no single row's"""
LARGEST_ADAPTER_RATE = 5e-4
"""The largest of the published rates of LoRA"""
LOW_RATE = 2e-5
"""The usual rate of all weights, which no adapter finds too large"""
QUANTIZATION = re.compile(
    r"4-?bit|8-?bit|bitsandbytes|\bbnb\b|quanti[sz]|\bq[2-8]_|gguf|gptq|\bawq\b|nf4|int[48]\b|fp8|qlora|llama-?cpp|ollama|exl2",
    re.IGNORECASE,
)
SIXTEEN_BITS = re.compile(r"bfloat16|(?<!b)float16|\.half\(|\bbf16\b")
FLOAT32 = re.compile(r"float32|\bfp32\b")
TRAINS_IN_16_BITS = re.compile(
    r"\b(?:bf16|fp16)['\"]?\s?[=:]\s?(?:[Tt]rue|auto)\b|--(?:bf16|fp16)\b(?!\s+[Ff]alse)|\bautocast\("
    r"|mixed[-_]precision['\"]?[=: ]\s?['\"]?(?:bf|fp)16|['\"](?:bf16|16)-(?:mixed|true)['\"]"
)
"""A line by which a training computes in 16 bits"""
WIDE_PRODUCTS = re.compile(
    r"float32|\bfp32\b|\b(?:bf16|fp16)['\"]?\s?[=:]\s?[Ff]alse|enabled\s?=\s?False"
)
LOADS_A_MODEL = re.compile(r"(?:Model\w*|For[A-Z]\w+)\.from_pretrained\(|\bpipeline\(")
GENERATES_TEXT = re.compile(r"\.generate\(|\bpipeline\(")
EIGHT_BITS = re.compile(r"load_in_8bit[\"']?\s*[:=]\s*[Tt]rue")
OTHER_BITS = re.compile(
    r"load_in_4bit[\"']?\s*[:=]\s*[Tt]rue|bnb_4bit|4-?bit|gptq|\bawq\b|nf4|gguf", re.IGNORECASE
)
USUAL_RATES = {True: 5e-5, False: 5e-6}
"""From which on a rate is not far too small: of adapters, and of all weights"""


def find_reason_against(cause: str, evidence: Evidence) -> str:
    """Why a cause can't be that of this project, in a few words; empty where it may be."""
    for row in RULES:
        if row.words.search(cause):
            reason = row.against(evidence)
            if reason:
                return reason
    return ""


def _reason_if_batch_is_not_tiny(evidence: Evidence) -> str:
    """The reason against a cause where a batch has several rows, or the accumulation steps are few;
    empty otherwise.
    """
    batches, steps = (
        evidence.numbers_set_by_lines(BATCH),
        evidence.numbers_set_by_lines(ACCUMULATION),
    )
    if batches and min(batches) >= SMALL_BATCH:
        return f"a batch has {min(batches):g} rows a GPU"
    if steps and max(steps) < MANY_STEPS:
        return f"{max(steps):g} accumulation steps are few"
    return ""


def _reason_if_padding_is_to_longest_row(evidence: Evidence) -> str:
    """The reason against a cause where the library's trainer pads to the longest row of a batch,
    and no line pads to a fixed length; empty otherwise.
    """
    if evidence.trains_only_by_library_trainer and not evidence.line_matches(FIXED_PADDING):
        return "no line pads to a fixed length, and the trainer pads to the longest row of a batch"
    return ""


def _reason_if_loss_never_rose(evidence: Evidence) -> str:
    """The reason against a cause where the loss of every log never rose above its start; empty
    otherwise.
    """
    values = [log.curve("loss").finite().value for log in evidence.logs]
    known = [value for value in values if value.size >= MIN_LOSSES]
    if known and all(_never_rises_above_start(value) for value in known):
        return "the loss never rose above its start"
    return ""


def _never_rises_above_start(values: np.ndarray) -> bool:
    """Does a loss end below its start, and never climb over it?"""
    parts = np.array_split(values, MIN_LOSSES // 2)
    means = [float(part.mean()) for part in parts]
    return means[-1] <= means[0] and max(means) <= RISE * means[0]


def _reason_if_evaluation_loss_never_rose(evidence: Evidence) -> str:
    """The reason against a cause where the evaluation loss of every log ends near its least value;
    empty otherwise.
    """
    curves = [log.curve("eval_loss").finite().value for log in evidence.logs]
    known = [values for values in curves if values.size > 1]
    if known and all(values[-1] <= LATE_RISE * values.min() for values in known):
        return "the evaluation loss ends at its least value"
    return ""


def _reason_if_evaluation_loss_is_over_pairs(evidence: Evidence) -> str:
    """The reason against a cause where the evaluation loss is one of preference pairs, which is a
    mean over pairs; empty otherwise.
    """
    logs = [log for log in evidence.logs if log.curve("eval_loss")]
    if (
        logs
        and all(log.kind == "preference" for log in logs)
        and evidence.trains_only_by_library_trainer
    ):
        return "the loss of pairs is a mean over pairs, whatever the batch"
    return ""


def _reason_if_trainer_steps_schedule(evidence: Evidence) -> str:
    """The reason against a cause where the library's trainer steps the schedule itself; empty
    otherwise.
    """
    if evidence.trains_only_by_library_trainer and not evidence.line_matches(OWN_STEP):
        return "the library's trainer steps the schedule itself"
    return ""


def _reason_if_one_process_saves(evidence: Evidence) -> str:
    """The reason against a cause where only one process saves, by the library's trainer or by a
    guard in the script; empty otherwise.
    """
    if evidence.trains_only_by_library_trainer or (
        evidence.line_matches(SAVES) and evidence.line_matches(GUARDED)
    ):
        return "only one process saves"
    return ""


def _reason_if_classifier_pad_is_set(evidence: Evidence) -> str:
    """The reason against a cause where every script that loads a classifier gives its model the
    tokenizer's pad; empty otherwise.
    """
    classifying = evidence.lines_of_matching_files(CLASSIFIER_LOAD)
    set_alike = [any(PAD_OF_TOKENIZER.search(line) for line in lines) for lines in classifying]
    if set_alike and all(set_alike):
        return "the classifier's pad_token_id is set to the tokenizer's"
    return ""


def _reason_if_rows_are_split_over_processes(evidence: Evidence) -> str:
    """The reason against a cause where the rows are shared out over the processes; empty otherwise."""
    return (
        "the loader is shared out over the processes"
        if evidence.trains_only_by_library_trainer or evidence.line_matches(SHARED_OUT)
        else ""
    )


def _hub_models_unless_folder_named(evidence: Evidence) -> set[str]:
    """The models of the hub that lines name; none where one is a folder, whose model is not known
    by its name.
    """
    names = {match[1] for line in evidence.lines if (match := MODEL.search(line))}
    return set() if any(LOCAL_PATH.match(name) for name in names) else names


def _reason_against_if_models_do_not_think(evidence: Evidence) -> str:
    """The reason against a cause where no file names a model that reasons, and no text holds
    <think>; empty otherwise.
    """
    names = _hub_models_unless_folder_named(evidence)
    if names and not evidence.line_matches(THINKS) and not THINKS.search(evidence.question):
        return "no file names a model that reasons, and no text holds <think>"
    return ""


def _reason_if_labels_are_boolean(evidence: Evidence) -> str:
    """The reason against a cause where the script makes booleans of the labels; empty otherwise."""
    return (
        "the script makes booleans of the labels" if evidence.line_matches(LABEL_IS_BOOLEAN) else ""
    )


def _reason_if_library_builds_kto_mismatches(evidence: Evidence) -> str:
    """The reason against a cause where the library's trainer builds the mismatched batch of KTO
    itself; empty otherwise.
    """
    return (
        "the library's trainer builds the mismatched batch"
        if evidence.trains_only_by_library_trainer
        else ""
    )


def _reason_if_updates_outgrow_bf16_rounding(evidence: Evidence) -> str:
    """The reason against a cause where an adapter is trained in float32, or the learning rate is
    high; empty otherwise.
    """
    if evidence.line_matches(ADAPTER):
        return "the weights of the adapter are trained, in float32"
    rates = evidence.numbers_set_by_lines(RATE)
    return f"the rate is {min(rates):g}" if rates and min(rates) >= HIGH_RATE else ""


def _reason_if_every_start_is_from_hub(evidence: Evidence) -> str:
    """The reason against a cause where every training starts from a model of the hub, and from no
    merged one; empty otherwise.
    """
    names = _hub_models_unless_folder_named(evidence)
    if names and not any(map(MERGED.search, names)):
        return "every training starts from the hub's model"
    return ""


def _reason_if_server_loads_model_once(evidence: Evidence) -> str:
    """The reason against a cause where the server's log shows that the model is loaded once; empty
    otherwise.
    """
    if evidence.line_matches(KEPT_ALIVE_ZERO):
        return ""
    loads = sum(MODEL_LOADS.search(line) is not None for line in evidence.lines)
    servers = [log for log in evidence.logs if log.inference_server_name]
    return "the server's log shows one load" if servers and loads <= MAX_LOADS else ""


def _reason_if_one_user_asks(evidence: Evidence) -> str:
    """The reason against a cause where no line limits the server to one request, and nobody speaks
    of several users; empty otherwise.
    """
    if SEVERAL_USERS.search(evidence.question) or evidence.line_matches(ONE_AT_A_TIME):
        return ""
    return "no line limits the server to one request, and nobody speaks of several users"


def _reason_if_evaluation_loads_adapter(evidence: Evidence) -> str:
    """The reason against a cause where the evaluation is given an adapter; empty otherwise."""
    return (
        "the evaluation is given an adapter by peft="
        if evidence.line_matches(ADAPTER_OF_LM_EVAL)
        else ""
    )


def _reason_if_logged_gradients_are_nonzero(evidence: Evidence) -> str:
    """The reason against a cause where the log's gradient norms are above 0 at most steps; empty
    otherwise.
    """
    norms = evidence.logged_curves("grad_norm")
    if norms and all((values > 0).mean() >= MIN_MOVED_SHARE for values in norms):
        least, most = min(map(np.min, norms)), max(map(np.max, norms))
        return f"the log has gradients: grad_norm {least:.3g} to {most:.3g}"
    return ""


def _reason_if_loss_and_gradients_are_nonzero(evidence: Evidence) -> str:
    """The reason against a cause where the logged loss and gradients are above 0, which takes
    tokens with labels; empty otherwise.
    """
    losses = evidence.logged_curves("loss")
    # Without a label the loss is 0 or NaN at every step.
    is_live = losses and all((values > 0).all() and values[0] > 0.01 for values in losses)
    return _reason_if_logged_gradients_are_nonzero(evidence) if is_live else ""


def _reason_if_learning_rate_stays_above_zero(evidence: Evidence) -> str:
    """The reason against a cause where the logged learning rate is above 0 to the end, and peaks in
    the first half; empty otherwise.
    """
    rates = evidence.logged_curves("learning_rate")
    if rates and all(_stays_above_zero_after_early_peak(values) for values in rates):
        return f"the log has a rate above 0 to the end, up to {max(map(np.max, rates)):.3g}"
    return ""


def _stays_above_zero_after_early_peak(rates: np.ndarray) -> bool:
    """Is a rate above 0 but at the very ends, and at its peak in the first half of the run?"""
    middle = rates[1:-1]
    return bool((middle > 0).all() and np.argmax(rates) <= len(rates) // 2)


def _reason_if_adapter_scale_is_usual(evidence: Evidence) -> str:
    """The reason against a cause where lora_alpha is not small beside the rank; empty otherwise."""
    alphas, ranks = evidence.numbers_set_by_lines(ALPHA), evidence.numbers_set_by_lines(RANK)
    if not alphas or not ranks or max(ranks) <= 0:
        return ""
    least = min(alphas) / max(ranks)
    return f"lora_alpha is {least:g} times the rank" if least >= LOWEST_SCALE else ""


def _reason_if_learning_rate_is_not_too_small(evidence: Evidence) -> str:
    """The reason against a cause where the learning rate is not far too small for what is trained;
    empty otherwise.
    """
    # What a log has at its end, or after a resume, is the schedule's.
    rates = evidence.numbers_set_by_lines(RATE) or [
        float(one.max()) for one in evidence.logged_curves("learning_rate")
    ]
    usual = USUAL_RATES[evidence.line_matches(ADAPTER)]
    return f"the rate is {min(rates):g}" if rates and min(rates) >= usual else ""


def _reason_if_only_adapter_is_trained(evidence: Evidence) -> str:
    """The reason against a cause where an adapter is trained, and no line names whole modules;
    empty otherwise.
    """
    named = [line for line in evidence.lines if WHOLE_MODULES.search(line)]
    is_one = evidence.line_matches(ADAPTER) or evidence.line_matches(SAVED_ADAPTER)
    if is_one and all(NOTHING_SET.search(line) for line in named):
        return "no line names modules_to_save: the adapter alone is trained"
    return ""


def _reason_if_merge_loads_on_cpu(evidence: Evidence) -> str:
    """The reason against a cause where every load of the merge is onto the CPU; empty otherwise."""
    maps = [line for line in evidence.lines if DEVICE_MAP.search(line)]
    if maps and all(CPU_MAP.search(line) for line in maps):
        return "the model is loaded onto the CPU"
    return ""


def _reason_if_deepspeed_made_model_in_parts(evidence: Evidence) -> str:
    """The reason against a cause where DeepSpeed itself says that the model was made in parts;
    empty otherwise.
    """
    is_made_in_parts = evidence.line_matches(MADE_IN_PARTS)
    return "the log says that DeepSpeed made the model in parts" if is_made_in_parts else ""


def _reason_if_several_gpus_are_full(evidence: Evidence) -> str:
    """The reason against a cause where the memory of several GPUs is used up, each by its own
    process; empty otherwise.
    """
    gpus = {match[1] for line in evidence.lines if (match := FULL_GPU.search(line))}
    return f"{len(gpus)} GPUs are full, each by its own process" if len(gpus) > 1 else ""


def _reason_if_adapter_loss_fell(evidence: Evidence) -> str:
    """The reason against a cause where the loss of the one logged training fell, and it trains an
    adapter; empty otherwise.
    """
    losses = evidence.logged_curves("loss")
    # Of several runs it is not known which one is asked about.
    if len(losses) != 1 or not evidence.line_matches(ADAPTER):
        return ""
    parts = np.array_split(losses[0], MIN_LOSSES // 2)
    first, last = float(parts[0].mean()), float(parts[-1].mean())
    has_learned = 0 < last <= LEARNED * first
    return f"the training's loss fell from {first:.3g} to {last:.3g}" if has_learned else ""


def _reason_if_every_loss_fell(evidence: Evidence) -> str:
    """The reason against a cause where the loss of every logged training fell, so that what is
    trained has learned something; empty otherwise.
    """
    curves = [log.curve("loss").finite().value for log in evidence.logs]
    losses = [np.array_split(one, QUARTERS) for one in curves if one.size >= QUARTERS]
    ends = [(float(parts[0].mean()), float(parts[-1].mean())) for parts in losses]
    if ends and all(0 < last <= LEARNED * first for first, last in ends):
        first, last = ends[0]
        return f"the training's loss fell from {first:.3g} to {last:.3g}"
    return ""


def _reason_if_no_layers_are_numbered(evidence: Evidence) -> str:
    """The reason against a cause where no line names layers by numbers; empty otherwise."""
    if evidence.has_training_line and not evidence.line_matches(LAYER_NUMBERS):
        return "no line names layers by numbers"
    return ""


def _reason_if_only_own_data_sets_are_named(evidence: Evidence) -> str:
    """The reason against a cause where every line that names a data set names one of the user's
    own, and no demo; empty otherwise.
    """
    names = [name for line in evidence.lines for name in DATASET_NAME.findall(line)]
    if names and not any(map(DEMO_DATA.search, names)):
        return f"the data set is {names[0]}, and no demo"
    return ""


def _reason_if_gradients_or_adapter_show_learning(evidence: Evidence) -> str:
    """The reason against a cause where the log has gradients, or the one adapter has learned; empty
    otherwise.
    """
    norms = evidence.logged_curves("grad_norm")
    if norms and all(values.max() > 0 for values in norms):
        return f"the log has gradients: grad_norm up to {max(map(np.max, norms)):.3g}"
    return _reason_if_adapter_loss_fell(evidence)


def _reason_if_reward_stays_near_zero(evidence: Evidence) -> str:
    """The reason against a cause where the reward of every run stays near 0, so that the form is
    not paid for either; empty otherwise.
    """
    rewards = evidence.logged_curves("reward")
    if rewards and all(np.abs(values).max() <= MAX_UNPAID_REWARD for values in rewards):
        return f"the log's reward is at most {max(map(np.max, rewards)):.3g}: the form is not paid for either"
    return ""


def _reason_if_pairs_have_no_scores(evidence: Evidence) -> str:
    """The reason against a cause where the pairs are here, and no file names a score of answers;
    empty otherwise.
    """
    if evidence.line_matches(PAIR_OF_ANSWERS) and not evidence.line_matches(SCORE):
        return "no file names a score of the answers"
    return ""


def _reason_if_prefix_cache_is_used(evidence: Evidence) -> str:
    """The reason against a cause where the server keeps the prefix of prompts in a cache; empty
    otherwise.
    """
    hits = evidence.numbers_set_by_lines(PREFIX_HITS)
    if hits and max(hits) > 0:
        return f"the server's log shows a prefix cache hit rate of {max(hits):g}%"
    return (
        "the server is given --enable-prefix-caching" if evidence.line_matches(PREFIX_CACHE) else ""
    )


def _reason_if_long_context_is_asked_for(evidence: Evidence) -> str:
    """The reason against a cause where a context is asked for whose cache takes the GPU, and not
    the weights; empty otherwise.
    """
    lengths = [
        length for length in evidence.numbers_set_by_lines(CONTEXT) if length >= LONG_CONTEXT
    ]
    if lengths:
        return f"a context of {max(lengths):,.0f} tokens is set aside: shorten that first"
    return ""


def _reason_if_modelfile_sets_stops(evidence: Evidence) -> str:
    """The reason against a cause where the Modelfile sets stops; empty otherwise."""
    return "the Modelfile sets stops" if evidence.line_matches(STOP_SETTING) else ""


def _reason_if_steps_were_made_before_failure(evidence: Evidence) -> str:
    """The reason against a cause where the run made steps of the optimizer before it failed; empty
    otherwise.
    """
    for log in evidence.logs:
        failed = log.output is not None and log.output.failure is not None
        if failed and not log.is_numbered and log.last_step >= MIN_FITTED_STEPS:
            return f"{log.last_step:,.0f} steps of the optimizer were made before"
    return ""


def _reason_if_user_means_training(evidence: Evidence) -> str:
    """The reason against a cause where the user complains of the training, and names no generation;
    empty otherwise.
    """
    if ABOUT_TRAINING.search(evidence.question) and not ABOUT_ANSWERS.search(evidence.question):
        return "what is slow is the training, and this is of generation"
    return ""


def _reason_if_no_thinking_is_involved(evidence: Evidence) -> str:
    """The reason against a cause where the user means the training, or no model that reasons is
    here; empty otherwise.
    """
    return _reason_if_user_means_training(evidence) or _reason_against_if_models_do_not_think(
        evidence
    )


def _reason_if_card_has_bfloat16(evidence: Evidence) -> str:
    """The reason against a cause where the one card that is named is newer than those without
    bfloat16; empty otherwise.
    """
    named = [evidence.question, *evidence.lines]
    newer = next((match[0] for text in named if (match := NEWER_CARD.search(text))), "")
    if newer and not any(OLD_CARD.search(text) for text in named):
        return f"a {newer} computes bfloat16"
    return ""


def _reason_if_one_gpu_serves(evidence: Evidence) -> str:
    """The reason against a cause where the engine has one GPU for the model; empty otherwise."""
    if evidence.line_matches(ONE_SHARD) and not evidence.line_matches(DEVICE_MAP):
        return "the engine has one GPU for the model (tensor_parallel_size=1)"
    return ""


def _reason_if_log_says_gpu(evidence: Evidence) -> str:
    """The reason against a cause where the log says that the model is on the GPU; empty otherwise."""
    if evidence.line_matches(ON_GPU) and not evidence.line_matches(ON_CPU):
        return "the log says that the model is on the GPU"
    return ""


def _reason_if_loader_has_workers(evidence: Evidence) -> str:
    """The reason against a cause where the data loader has workers; empty otherwise."""
    workers = evidence.numbers_set_by_lines(WORKERS)
    if workers and min(workers) >= 1:
        return f"the data loader has {min(workers):g} workers"
    return ""


def _reason_if_client_asks_for_adapter(evidence: Evidence) -> str:
    """The reason against a cause where all clients name a model that a server's list of adapters
    has; empty otherwise.
    """
    served = {name for line in evidence.lines for name in LORA_MODULE.findall(line)}
    asked = {match[1] for line in evidence.lines if (match := ASKED_MODEL.search(line))}
    if served and asked and asked <= served:
        return f"the client asks for {min(asked)}, a name of --lora-modules"
    return ""


def _reason_if_loss_is_no_sum_of_batches(evidence: Evidence) -> str:
    """The reason against a cause where no logged loss is above what one batch has; a sum of several
    begins far above; empty otherwise.
    """
    losses = evidence.logged_curves("loss")
    highest = max((float(values.max()) for values in losses), default=0.0)
    if losses and highest < ORDINARY_LOSS:
        return f"no logged loss is above {highest:.3g}, which is that of one batch"
    return ""


def _reason_if_log_records_cover_several_rows(evidence: Evidence) -> str:
    """The reason against a cause where each record of the log stands for several rows; empty
    otherwise.
    """
    batches, steps = (
        evidence.numbers_set_by_lines(BATCH),
        evidence.numbers_set_by_lines(ACCUMULATION),
    )
    each = evidence.numbers_set_by_lines(LOGGING_STEPS)
    # Of several values it is not known which one the run had.
    if not batches or any(len(set(values)) > 1 for values in (batches, steps, each)):
        return ""
    rows = batches[0] * (steps[0] if steps else 1) * (each[0] if each else 1)
    return f"a record of the log is a mean over {rows:g} rows and more" if rows >= MANY_ROWS else ""


def _reason_if_low_learning_rate_and_loss_falls(evidence: Evidence) -> str:
    """The reason against a cause where the learning rate is low, and the loss falls without
    climbing; empty otherwise.
    """
    rates = [float(values.max()) for values in evidence.logged_curves("learning_rate")]
    rates = rates or evidence.numbers_set_by_lines(RATE)
    # A rate of all weights is far too small for an adapter, and the usual one of an adapter far too large for them.
    most = LARGEST_ADAPTER_RATE if _reason_if_only_adapter_is_trained(evidence) else LOW_RATE
    if rates and max(rates) <= most and _reason_if_loss_never_rose(evidence):
        return f"the rate is {max(rates):.3g} at most, and the loss never rose above its start"
    return ""


def _reason_if_nothing_is_quantized(evidence: Evidence) -> str:
    """The reason against a cause where no line, and no word of the user, names a quantization;
    empty otherwise.
    """
    if (
        evidence.lines
        and not evidence.line_matches(QUANTIZATION)
        and not evidence.user_says(QUANTIZATION)
    ):
        return "no file names a quantization"
    return ""


def _reason_if_only_8_bits_are_used(evidence: Evidence) -> str:
    """The reason against a cause where the files quantize to 8 bits, and name no other kind; empty
    otherwise.
    """
    if (
        evidence.line_matches(EIGHT_BITS)
        and not evidence.line_matches(OTHER_BITS)
        and not evidence.user_says(OTHER_BITS)
    ):
        return "the files quantize by load_in_8bit, which has no compute dtype"
    return ""


def _reason_if_generating_loads_in_16_bits(evidence: Evidence) -> str:
    """The reason against a cause where each file that loads a model to generate names a dtype of 16
    bits, and none of 32; empty otherwise.

    What a training beside it sets (`bf16=True`) says nothing about how the model is loaded afterwards.
    """
    loaders = [
        lines
        for lines in evidence.lines_of_matching_files(LOADS_A_MODEL)
        if any(GENERATES_TEXT.search(line) for line in lines)
    ]
    is_narrow = [
        any(SIXTEEN_BITS.search(line) for line in lines)
        and not any(FLOAT32.search(line) for line in lines)
        for lines in loaders or [evidence.lines]
    ]
    return "the files load or cast to 16 bits" if all(is_narrow) else ""


def _reason_if_training_is_in_16_bits(evidence: Evidence) -> str:
    """The reason against a cause where a line sets a training in 16 bits, and none anything wider;
    empty otherwise.
    """
    if evidence.line_matches(TRAINS_IN_16_BITS) and not evidence.line_matches(WIDE_PRODUCTS):
        return "the files train in bf16 or fp16"
    return ""


def _reason_if_no_nccl_transport_is_set(evidence: Evidence) -> str:
    """The reason against a cause where a run is launched here, and no line switches a transport of
    NCCL; empty otherwise.
    """
    if evidence.line_matches(SWITCHES_TRANSPORT) or not evidence.line_matches(SHOWS_LAUNCH):
        return ""
    return "no file here sets NCCL_IB_DISABLE, NCCL_P2P_DISABLE, NCCL_SHM_DISABLE or NCCL_NET"


RULES: tuple[RuleOutRow, ...] = (
    make_rule_out_row(r"^the model is loaded in float32", _reason_if_generating_loads_in_16_bits),
    make_rule_out_row(
        r"^weights and matrix products in float32", _reason_if_training_is_in_16_bits
    ),
    make_rule_out_row(
        r"^a quantized model that computes in float32", _reason_if_only_8_bits_are_used
    ),
    make_rule_out_row(
        r"^the logged loss is multiplied by the accumulation steps",
        _reason_if_loss_is_no_sum_of_batches,
    ),
    make_rule_out_row(
        r"^one row is a step, and each step is logged", _reason_if_log_records_cover_several_rows
    ),
    make_rule_out_row(
        r"^the learning rate is far too large", _reason_if_low_learning_rate_and_loss_falls
    ),
    make_rule_out_row(
        r"^the adapter was merged into 4-bit weights", _reason_if_nothing_is_quantized
    ),
    make_rule_out_row(r"^no token has a label", _reason_if_loss_and_gradients_are_nonzero),
    make_rule_out_row(r"^nothing is trainable", _reason_if_logged_gradients_are_nonzero),
    make_rule_out_row(
        r"^reentrant gradient checkpointing over a frozen", _reason_if_logged_gradients_are_nonzero
    ),
    make_rule_out_row(
        r"^the schedule has ended, or never leaves", _reason_if_learning_rate_stays_above_zero
    ),
    make_rule_out_row(r"^the adapter is scaled away", _reason_if_adapter_scale_is_usual),
    make_rule_out_row(
        r"^the learning rate is far too small", _reason_if_learning_rate_is_not_too_small
    ),
    make_rule_out_row(r"^a tiny batch with many accumulation steps", _reason_if_batch_is_not_tiny),
    make_rule_out_row(
        r"^(?:all )?rows are padded to max_length", _reason_if_padding_is_to_longest_row
    ),
    make_rule_out_row(
        r"^(?:the settings train no weight|the output shows that hardly more than a norm)",
        _reason_if_every_loss_fell,
    ),
    make_rule_out_row(
        r"^(?:settings select layers|layers are chosen) by numbers that the model",
        _reason_if_no_layers_are_numbered,
    ),
    make_rule_out_row(
        r"^the configuration trains the demo data", _reason_if_only_own_data_sets_are_named
    ),
    make_rule_out_row(r"^the learning rate destroyed the weights", _reason_if_loss_never_rose),
    make_rule_out_row(
        r"scheduler that is stepped by every process", _reason_if_trainer_steps_schedule
    ),
    make_rule_out_row(r"^the evaluation loss rises again", _reason_if_evaluation_loss_never_rose),
    make_rule_out_row(
        r"^the loss of the evaluation depends on its batch size",
        _reason_if_evaluation_loss_is_over_pairs,
    ),
    make_rule_out_row(r"^every process writes the same checkpoint", _reason_if_one_process_saves),
    make_rule_out_row(
        r"^every process of a DistributedDataParallel loop goes through all rows",
        _reason_if_rows_are_split_over_processes,
    ),
    make_rule_out_row(r"^the model reasons before each answer", _reason_if_no_thinking_is_involved),
    make_rule_out_row(r"^prompts padded to max_length", _reason_if_user_means_training),
    make_rule_out_row(
        r"^the model was left in training mode, with checkpointing", _reason_if_user_means_training
    ),
    make_rule_out_row(r"^generate after the training", _reason_if_user_means_training),
    make_rule_out_row(r"^a quantization without a fast kernel", _reason_if_user_means_training),
    make_rule_out_row(r"^the card has no fast bfloat16", _reason_if_card_has_bfloat16),
    make_rule_out_row(r"^device_map='auto' on several GPUs", _reason_if_one_gpu_serves),
    make_rule_out_row(r"^the model was never moved to the GPU", _reason_if_log_says_gpu),
    make_rule_out_row(
        r"^rows are tokenized, or images decoded, in the data loader", _reason_if_loader_has_workers
    ),
    make_rule_out_row(
        r"^the client asks the server for the base by its name", _reason_if_client_asks_for_adapter
    ),
    make_rule_out_row(r"^kTO's labels are text or numbers", _reason_if_labels_are_boolean),
    make_rule_out_row(
        r"^kTO's mismatched batch contains the matched pairs",
        _reason_if_library_builds_kto_mismatches,
    ),
    make_rule_out_row(
        r"^(?:steps are rounded away: all weights in bfloat16|weights in bfloat16 alone)",
        _reason_if_updates_outgrow_bf16_rounding,
    ),
    make_rule_out_row(r"was trained on the merged SFT model", _reason_if_every_start_is_from_hub),
    make_rule_out_row(
        r"^a classifier reads its answer off a pad|^the classifier's pad_token",
        _reason_if_classifier_pad_is_set,
    ),
    make_rule_out_row(r"^keep_alive is 0", _reason_if_server_loads_model_once),
    make_rule_out_row(
        r"^a (?:job switches a|script switches off a) fast (?:NCCL )?transport",
        _reason_if_no_nccl_transport_is_set,
    ),
    make_rule_out_row(r"^the evaluation names the base twice", _reason_if_evaluation_loads_adapter),
    make_rule_out_row(r"^a merge loads the whole base on the GPU", _reason_if_merge_loads_on_cpu),
    make_rule_out_row(
        r"^the model is loaded before ZeRO-3 is known", _reason_if_deepspeed_made_model_in_parts
    ),
    make_rule_out_row(r"^every process puts its model on GPU 0", _reason_if_several_gpus_are_full),
    make_rule_out_row(
        r"^embeddings and head are trained whole", _reason_if_only_adapter_is_trained
    ),
    make_rule_out_row(
        r"^the adapter is frozen(?:\n|$)", _reason_if_gradients_or_adapter_show_learning
    ),
    make_rule_out_row(r"^the reward pays for the form alone", _reason_if_reward_stays_near_zero),
    make_rule_out_row(r"^many pairs are ties", _reason_if_pairs_have_no_scores),
    make_rule_out_row(
        r"^a long prompt is computed again for each request", _reason_if_prefix_cache_is_used
    ),
    make_rule_out_row(r"^layers that do not fit the GPU", _reason_if_long_context_is_asked_for),
    make_rule_out_row(
        r"^the server does not end answers where the model does", _reason_if_modelfile_sets_stops
    ),
    make_rule_out_row(
        r"^states of the optimizer, and gradients", _reason_if_steps_were_made_before_failure
    ),
    make_rule_out_row(r"^the server answers one request at a time", _reason_if_one_user_asks),
    *NEEDS,
)
