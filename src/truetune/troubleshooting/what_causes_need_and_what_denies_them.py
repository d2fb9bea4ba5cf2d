"""Tables of what a cause needs to be possible at all, and of which settings speak against it.

A cause of a loss of the evaluation needs an evaluation and somebody who speaks of its loss; one of Adafactor needs
Adafactor; a warm-up without a schedule needs a schedule that has none. One row says it of one kind of cause. A need is
unmet only where the files show the thing that would have it: a folder with no script of the training says nothing of
its optimizer. The trade-off: what a library does by default stands in no line, so that rows name what a line has to
say, and a default keeps the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from truetune.checks.explaining.recognise_project_traits_behind_causes import GENERATES, TRAINS
from truetune.troubleshooting.project_evidence_for_ruling_out_causes import (
    MIN_LOSSES,
    Evidence,
    RuleOutRow,
    make_rule_out_row,
)

ASKS = re.compile(
    r"\.generate\(|pipeline\(|completions\.create|create_chat_completion|ollama\.(?:chat|generate)"
)
BY_TRANSFORMERS = re.compile(r"\.generate\(|\bpipeline\(")
APPLIES_TEMPLATE = re.compile(
    r"apply_chat_template|chat\.completions|chat/completions|create_chat_completion|ollama\.chat|api/chat|\.chat\("
)
WRITES_HEADER = re.compile(r"add_generation_prompt['\"]?\s*[=:]\s*True")
HEADER_SPEAKS = re.compile(r"add_generation_prompt")
CUTS_PROMPT = re.compile(
    r"(?:shape\[-?1\]|len\([^()]{0,80}\)|prompt_len\w*|input_len\w*|n_prompt\w*|\.size\(-?1\)|\bstart)\s*:\s*\]"
    r"|return_full_text\s*=\s*False|\.removeprefix\(|\.split\("
)
SKIPS_MARKS = re.compile(r"skip_special_tokens['\"]?\s*[=:]\s*True")
KEEPS_MARKS = re.compile(r"skip_special_tokens['\"]?\s*[=:]\s*False|\bdecode\((?!.*skip_special)")
OF_EVALUATION_LOSS = re.compile(
    r"loss|perplexit|\bppl\b|overfit|underfit|curve|\bnan\b|validation is|training is",
    re.IGNORECASE,
)
TOO_GOOD = re.compile(
    r"too good|1\.00?\b|100 ?%|9\d(?:\.\d)? ?%|0\.9\d|perfect|\blive\b|production|in service"
    r"|real |new (?:rows|data|users|questions)"
    r"|suspicious|high|great|good|fine|offline|pilot|unseen",
    re.IGNORECASE,
)
TOO_BAD = re.compile(
    r"\b0(?:\.0+)?(?: ?%|\b)|\bzero\b|\bnan\b|too low|chance|worse|far below|\b[1-9](?:\.\d)? ?%|bad|drops|lower|same|"
    r"identical|higher than",
    re.IGNORECASE,
)
PLAIN_DDP = re.compile(r"DistributedType\.MULTI_GPU\b")
"""What accelerate prints of a run without DeepSpeed and FSDP"""
NEW_QUESTIONS = (
    r"\b(?:new|unseen|fresh|real|unknown)\b[^.;!?]{0,30}"
    r"\b(?:questions?|inputs?|documents?|data|users?|customers?|prompts?|requests?|cases)\b"
)
FAILING = (
    r"\b(?:wrong|fails?|bad|useless|worse|poor|hallucinat\w+|makes? things up|can'?t answer)\b"
)
FAILS_ON_NEW = re.compile(
    rf"{NEW_QUESTIONS}[^.;!?]{{0,60}}{FAILING}|{FAILING}[^.;!?]{{0,60}}{NEW_QUESTIONS}",
    re.IGNORECASE,
)
"""`on new questions the model is wrong`, `it fails on unseen documents`"""
OF_SPEED_OR_FAILURE = re.compile(
    r"\bhangs?\b|freez|stuck at (?:start|init)|time-?out|crash|\berrors?\b|\boom\b|out of memory|\bidle\b|only one"
    r"|\bslow|faster|never starts|does not start|waits? |address already|utili[sz]ation",
    re.IGNORECASE,
)
OF_QUALITY = re.compile(
    r"\bloss\b|accuracy|worse|quality|learn|metric|result|score|answers?|overfit|converge|generali",
    re.IGNORECASE,
)
NUMBER_OF_PROCESSES = re.compile(
    r"(?:world[_ ]?size|tensor[-_]parallel[-_]size|NPROC_PER_NODE|nproc[-_]per[-_]node|num_processes"
    r"|num_gpus)['\"]?\W{1,3}(\d{1,4})\b",
    re.IGNORECASE,
)
SINGLE_PROCESS = re.compile(r"single_device|world[_ ]?size\W{1,3}1\b", re.IGNORECASE)
JOB_GPUS = re.compile(
    r"(?:gres=gpu|gpus-per-(?:node|task)|#SBATCH.{0,20}--gpus)[=: ](?:[\w-]{1,20}:)?(\d{1,3})\b"
    r"|device_count\W{1,8}(\d{1,3})\b|\bNum GPUs(?: used)? = (\d{1,3})\b"
)
OWN_GPU_OF_RANK = re.compile(
    r"set_device\(|local_rank['\"]?\s*\}|device_map.{0,30}(?:local_rank|process_index|PartialState)"
    r"|GPU [1-9]\d? has a total|current device.{0,12}cuda:[1-9]|rank\W{0,2}[1-9].{0,80}cuda:[1-9]|\.prepare\(",
    re.IGNORECASE,
)
ALL_ON_FIRST = re.compile(
    r"device_map.{0,20}(?:['\"]cuda(?::0)?['\"]|:\s*0\b)|\.cuda\((?:0)?\)|\.to\(['\"]cuda(?::0)?['\"]\)|['\"]cuda:0['\"]"
)
SCHEDULE = re.compile(r"lr_scheduler(?:_type)?['\"]?\s*[:=]\s*['\"]?([a-z]\w{2,40})")
WARM_UP = re.compile(r"warm_?up\w*['\"]?\s*[:= ]\s*['\"]?(?!0(?:\.0+)?\b|None|null)[\w.]")
LOADED_BEST = re.compile(r"load_best_model_at_end['\"]?\s*[:= ]\s*['\"]?[Tt]rue")
OVERWRITES = re.compile(r"overwrite_output_dir['\"]?\s*[:= ]\s*['\"]?[Tt]rue")
OF_LLAMA_FACTORY = re.compile(
    r"llama-?factory|finetuning_type|cutoff_len|dataset_info", re.IGNORECASE
)
LOADS_ADAPTER = re.compile(
    r"PeftModel|adapter_name_or_path|load_adapter|lora_model_dir|resume_from|AutoPeft|adapters?\W{1,3}(?:out|\./|/)"
    r"|requires_grad|freeze|is_trainable"
)
NEW_ADAPTER = re.compile(r"LoraConfig\(|get_peft_model\(|finetuning_type\W+lora|^\s*adapter\s*:")
BY_REWARDS = re.compile(r"\b(?:GRPO|RLOO)(?:Config|Trainer)\(|reward_funcs|rl\W{1,4}grpo\b")
BY_PAIRS = re.compile(
    r"\b(?:DPO|KTO|ORPO|CPO|SimPO|IPO|BCO|dpo|kto|orpo|simpo)(?:Config|Trainer)?\b|['\"](?:chosen|rejected)['\"]"
)
OF_PAIRS = r"\bln 2\b|\b0\.69|\bbeta\b|\bchosen\b|\brejected\b|\bpairs? x\b"
"""In the text of a cause, and in how it is seen"""
PADS_LABELS = re.compile(
    r"labels?\b.{0,80}-\s?100|label_pad_token_id|DataCollatorForSeq2Seq|DataCollatorForLanguageModeling|fill_value=-100"
)
OWN_LABELS = re.compile(
    r"def \w{0,30}collat|labels?['\"\]]{0,2}\s*[:=](?!=)|\.masked_fill|pad_sequence\("
)
COPIED_LABELS = re.compile(
    r"labels?['\"\]]{0,2}\s*[:=]\s*[^#]{0,60}(?:input_ids|\bids\b|\.clone\(|copy)"
)
MAPPED_BY = re.compile(r"\.map\(\s*(?:lambda|([A-Za-z_]\w{0,60}))")
TOKENIZES = re.compile(r"apply_chat_template|tok(?:enizer)?\(|\.encode\(")
EVALUATES = re.compile(
    r"eval|valid|val_|test_(?:set|file|dataset|split)|\btest\b|held.?out", re.IGNORECASE
)
OWN_LOSS = re.compile(
    r"def \w{0,40}loss|compute_loss|cross_entropy|CrossEntropyLoss|\.backward\(|loss_func"
)
FROM_PRETRAINED = re.compile(
    r"from_pretrained\(|model_name_or_path|base_model\s*:|--model\b|model_id|FROM "
)
FROM_CONFIG = re.compile(r"from_config\(|config_name|random_init|from scratch|--config_name")
ON_GPU = re.compile(
    r"device_map|\.cuda\(|\.to\(\s*['\"]?(?:cuda|device|f['\"]cuda|accelerator|torch\.device)"
    r"|--device[= ]cuda|tensor_parallel"
    r"|device\s*=\s*['\"0]"
)
IN_16_BITS = re.compile(r"bfloat16|bf16|(?<!b)float16|\.half\(|dtype[= :]+['\"]?(?:half|auto)")
IN_32_BITS = re.compile(r"float32|\.float\(|fp32")
IN_FLOAT16 = re.compile(
    r"(?<!b)float16|\bfp16\b(?!\W+(?:[Ff]alse|no|None))|\.half\(|dtype[= ]+half|precision\W+16|GradScaler"
)
IN_BFLOAT16 = re.compile(r"bfloat16|\bbf16\b(?!\W+(?:[Ff]alse|no|None))")
GREEDY = re.compile(r"do_sample['\"]?\s*[:=]\s*[Ff]alse|temperature['\"]?\s*[:=]\s*0(?:\.0)?\b")
SAMPLES = re.compile(
    r"do_sample['\"]?\s*[:=]\s*[Tt]rue|temperature['\"]?\s*[:=]\s*(?!0(?:\.0)?\b)[\d.]|SamplingParams\((?!.*temperature)"
)
MASTER = re.compile(
    r"(?:MASTER_ADDR|master_addr|main_process_ip|rdzv[-_]endpoint)\W{1,3}(\S{2,80})"
)
LOCAL = re.compile(r"localhost|127\.0\.0\.1")
BY_SRUN = re.compile(r"\bsrun\b.{0,120}(?:torchrun|accelerate|python|bash|\\)")
NO_REFERENCE = re.compile(
    r"\b(?:ORPO|CPO|SimPO)(?:Trainer|Config)|pref_loss\W+(?:orpo|simpo)|\brl\W+(?:orpo|simpo)|stage\W+orpo"
)
HAS_REFERENCE = re.compile(r"\b(?:DPO|KTO|BCO)(?:Trainer|Config)|ref_model|reference")
WRAPS = re.compile(
    r"DistributedDataParallel\(|\bDDP\(|FSDP\(|\.prepare\(|Trainer\(|fully_shard\(|deepspeed\.initialize"
)
UNWRAPPED = re.compile(r"\.module\b|unwrap")
MERGES = re.compile(r"merge_and_unload|llamafactory-cli export|mergekit")
BUILDS_PAIRS = re.compile(r"['\"](?:chosen|rejected)['\"]\]?\s*[:=]|\b(?:chosen|rejected)\s*=(?!=)")
LABELLED_LOSS = 0.05
"""A loss that never is below has labels. Chosen, not measured: a row without a label has 0 or NaN"""

BY_FSDP1 = re.compile(
    r"FullyShardedDataParallel\(|\bFSDP\(|fsdp_version['\"]?\W{1,3}1\b|FullyShardedDataParallel as"
)
BY_FSDP2 = re.compile(r"fully_shard\(|fsdp_version['\"]?\W{1,3}2\b")
ALL_GPUS_BUSY = re.compile(
    r"(?<!of )(?<!of the )(?<!only )\b(?:all|each|every|both|[2-9]|1\d|two|four|eight)\b(?: of)?(?: the| my)?"
    r"(?: \w+){0,2} (?:gpus?|cards?|devices?)\b(?:(?!\b(?:but|only|one|first|not|except)\b)[^.;!?]){0,40}?"
    r"\b(?:(?:9\d|8\d|100) ?(?:%|percent)|(?:fully |all )?busy\b|full load)",
    re.IGNORECASE,
)
"""`all 4 GPUs at 98 %`, `both cards are busy`"""

TAKES_EXP = re.compile(r"\bexp\(")
EXP_OF_MEAN = re.compile(
    r"\bexp\([^()]{0,60}(?:(?:eval|test|valid|val|dev)_?loss|mean|avg|average|total|/)",
    re.IGNORECASE,
)
"""`math.exp(metrics["eval_loss"])`, `exp(total / tokens)`"""
COLLECTS_PERPLEXITIES = re.compile(
    r"(?:ppl|perplex)\w{0,20}(?:\.append|\s*\+=)|(?:mean|sum)\([^)]{0,40}(?:ppl|perplex)",
    re.IGNORECASE,
)
OVER_GPUS = re.compile(r"Training with DataParallel|Was asked to gather along dimension 0")
"""What the Trainer and PyTorch print where one process runs a model on several GPUs"""
GPU_AT_WORK = re.compile(
    r"\s*(?P<index>\d{1,2}), [^,]{1,60}, (?P<memory>\d{1,6}) MiB, \d{1,6} MiB, (?P<load>\d{1,3}) %"
)
"""A line of nvidia-smi --query-gpu=index,name,memory.used,memory.total,utilization.gpu"""
# Chosen, not measured: a desktop takes less of either, and a copy of a model more.
MIN_BUSY_MIB, MIN_BUSY_PERCENT = 2_000, 5


def _make_reason_unless_named(
    pattern: str, label: str, *, of: str = "training"
) -> Callable[[Evidence], str]:
    """Make a row's test: it gives a reason against the cause where no line and no word names the
    thing that the cause needs.

    Args:
        pattern: how a line or the user's words show the thing.
        label: the thing, as a reader calls it.
        of: what has to be among the files before the lack says something: `training`, `generation` or `any`.
    """
    needed = re.compile(pattern)

    def test(evidence: Evidence) -> str:
        if (
            evidence.user_says(needed)
            or evidence.line_matches(needed)
            or not _does_absence_in_files_count_as_evidence(evidence, of)
        ):
            return ""
        return f"no line here has {label}"

    return test


def _reason_if_only_rewards_are_trained(evidence: Evidence) -> str:
    """The reason against a cause where a trainer of rewards is here, and none of pairs or labels;
    empty otherwise.
    """
    if (
        evidence.line_matches(BY_REWARDS)
        and not evidence.line_matches(BY_PAIRS)
        and not evidence.user_says(BY_PAIRS)
    ):
        return "answers are trained by rewards here, and no pairs"
    return ""


def _does_absence_in_files_count_as_evidence(evidence: Evidence, kind: str) -> bool:
    """Do the files show what would have the thing, so that its lack says something?"""
    if kind == "training":
        return evidence.has_training_line
    if kind == "generation":
        return evidence.line_matches(GENERATES)
    return bool(evidence.lines)


def _make_reason_if_line_matches(pattern: str, reason: str) -> Callable[[Evidence], str]:
    """Make a row's test: it gives `reason` against the cause where a line matches `pattern`."""
    refuting = re.compile(pattern)
    return lambda evidence: reason if evidence.line_matches(refuting) else ""


def _make_test_giving_first_reason(*tests: Callable[[Evidence], str]) -> Callable[[Evidence], str]:
    """Make a row's test: it gives the first reason that several tests have."""
    return lambda evidence: next((reason for test in tests if (reason := test(evidence))), "")


def _lines_of_files_that_ask_model(evidence: Evidence) -> list[Sequence[str]]:
    """The files that ask a model."""
    return evidence.lines_of_matching_files(ASKS)


def _is_there_file_and_all_match(files: Sequence[Sequence[str]], pattern: re.Pattern[str]) -> bool:
    """Is there a file, and does each show it?"""
    return bool(files) and all(any(map(pattern.search, lines)) for lines in files)


def _reason_if_scripts_apply_template(evidence: Evidence) -> str:
    """The reason against a cause where each script that asks a model applies the chat template;
    empty otherwise.
    """
    applied = _is_there_file_and_all_match(
        _lines_of_files_that_ask_model(evidence), APPLIES_TEMPLATE
    )
    return "each script that asks applies the chat template" if applied else ""


def _reason_if_generation_prompt_is_added(evidence: Evidence) -> str:
    """The reason against a cause where each script that asks adds the generation prompt, or none
    applies the template; empty otherwise.
    """
    files = _lines_of_files_that_ask_model(evidence)
    rendering = [lines for lines in files if any("apply_chat_template" in line for line in lines)]
    if files and not rendering:
        return "no script that asks calls apply_chat_template"
    return (
        "add_generation_prompt=True is set"
        if _is_there_file_and_all_match(rendering, WRITES_HEADER)
        else ""
    )


def _reason_if_prompt_is_cut_from_output(evidence: Evidence) -> str:
    """The reason against a cause where the prompt is cut off from what generate() returns, or a
    server answers; empty otherwise.
    """
    files = evidence.lines_of_matching_files(BY_TRANSFORMERS)
    if not files and _lines_of_files_that_ask_model(evidence):
        return "answers come from a server, which sends the answer alone"
    return (
        "the prompt is cut off from what generate returns"
        if _is_there_file_and_all_match(files, CUTS_PROMPT)
        else ""
    )


def _reason_if_decoding_skips_special_tokens(evidence: Evidence) -> str:
    """The reason against a cause where special tokens are left out when answers are decoded; empty
    otherwise.
    """
    if evidence.line_matches(SKIPS_MARKS) and not evidence.line_matches(KEEPS_MARKS):
        return "skip_special_tokens=True is set"
    return ""


def _reason_if_no_evaluation_loss_is_named(evidence: Evidence) -> str:
    """The reason against a cause where neither the user nor a log speaks of a loss of the
    evaluation; empty otherwise.
    """
    if evidence.user_says(OF_EVALUATION_LOSS) or evidence.logged_curves("eval_loss"):
        return ""
    return "nobody speaks of a loss of the evaluation"


def _reason_if_evaluation_loss_is_finite(evidence: Evidence) -> str:
    """The reason against a cause where each logged evaluation loss is a positive number, and the
    user names no NaN or zero; empty otherwise.
    """
    curves = [log.curve("eval_loss") for log in evidence.logs if log.curve("eval_loss")]
    match = re.search(r"\bnan\b|\b0(?:\.0+)?\b(?!\.?\d)|zero", evidence.question, re.IGNORECASE)
    finite = curves and all(np.isfinite(one.value).all() and one.value.min() > 0 for one in curves)
    return "each logged eval_loss is a number" if finite and not match else ""


def _reason_if_training_loss_is_finite(evidence: Evidence) -> str:
    """The reason against a cause where each logged training loss is a positive number, and the user
    names no NaN, infinity or zero; empty otherwise.
    """
    losses = evidence.logged_curves("loss")
    match = re.search(r"\bnan\b|\binf|!!!|\b0\.0\b|zero", evidence.question, re.IGNORECASE)
    raw = [log.curve("loss").value for log in evidence.logs]
    if (
        losses
        and not match
        and all(np.isfinite(one).all() and one.min() > 0 for one in raw if one.size)
    ):
        return "each logged loss is a number above 0"
    return ""


def _reason_if_user_calls_score_too_bad(evidence: Evidence) -> str:
    """The reason against a cause where the user speaks of a score that is too bad, and the cause
    makes one too good; empty otherwise.
    """
    if evidence.user_says(TOO_BAD) and not evidence.user_says(TOO_GOOD):
        return "it makes a score too good, and you speak of one that is too bad"
    return ""


def _reason_if_user_says_new_questions_fail(evidence: Evidence) -> str:
    """The reason against a cause where the user says that answers to new questions fail; empty
    otherwise.
    """
    if evidence.user_says(FAILS_ON_NEW):
        return (
            "it explains a difference of two losses, and you say that answers to new questions fail"
        )
    return ""


def _reason_if_run_is_plain_ddp(evidence: Evidence) -> str:
    """The reason against a cause where the output says that the run is plain DDP; empty otherwise."""
    return "the output says that the run is plain DDP" if evidence.line_matches(PLAIN_DDP) else ""


def _reason_if_user_means_speed_or_failure(evidence: Evidence) -> str:
    """The reason against a cause where the user speaks of speed or a failure, and not of what is
    learned; empty otherwise.
    """
    if evidence.user_says(OF_SPEED_OR_FAILURE) and not evidence.user_says(OF_QUALITY):
        return "it changes what is learned, and you speak of speed or of a failure"
    return ""


def _process_counts_named_by_lines(evidence: Evidence) -> set[int]:
    """The numbers of processes that lines name, 1 among them where one names that."""
    return {int(found) for line in evidence.lines for found in NUMBER_OF_PROCESSES.findall(line)}


def _reason_if_several_processes_are_started(evidence: Evidence) -> str:
    """The reason against a cause where several processes are started, and no line starts one alone;
    empty otherwise.
    """
    counts = _process_counts_named_by_lines(evidence)
    if counts and min(counts) > 1 and not evidence.line_matches(SINGLE_PROCESS):
        return f"{max(counts)} processes are started"
    return ""


def _reason_if_model_is_sharded_by_fsdp2(evidence: Evidence) -> str:
    """The reason against a cause where the model is sharded by FSDP2, whose parameters torch's
    clipping knows how to add up; empty otherwise.
    """
    if evidence.line_matches(BY_FSDP1):
        return ""
    if evidence.line_matches(BY_FSDP2) or re.search(
        r"(?i)fsdp ?v?2|fully_shard", evidence.question
    ):
        return "FSDP2 is used, whose norm clip_grad_norm_ takes over all processes"
    return ""


def _reason_if_exp_is_of_mean_loss(evidence: Evidence) -> str:
    """The reason against a cause where exp is taken of a loss that is the mean already, wherever it
    is taken; empty otherwise.
    """
    lines = [line for line in evidence.lines if TAKES_EXP.search(line)]
    if (
        lines
        and all(map(EXP_OF_MEAN.search, lines))
        and not evidence.line_matches(COLLECTS_PERPLEXITIES)
    ):
        return "exp is taken of the one mean loss"
    return ""


def _reason_if_user_starts_several_processes(evidence: Evidence) -> str:
    """The reason against a cause where the user's words name a launcher that starts a process for
    each GPU; empty otherwise.
    """
    launched = re.compile(r"torchrun|accelerate launch|\bFSDP|\bDDP\b|fully_shard", re.IGNORECASE)
    return "you start a process for each GPU" if evidence.user_says(launched) else ""


def _reason_if_user_sees_all_gpus_busy(evidence: Evidence) -> str:
    """The reason against a cause where the user says that all GPUs are at work; empty otherwise."""
    return "you see all GPUs at work" if evidence.user_says(ALL_GPUS_BUSY) else ""


def _reason_if_several_gpus_work(evidence: Evidence) -> str:
    """The reason against a cause where two GPUs or more work, by what nvidia-smi or the Trainer
    prints; empty otherwise.
    """
    if evidence.line_matches(OVER_GPUS):
        return "the model is run on several GPUs"
    busy = {
        match["index"]
        for line in evidence.lines
        if (match := GPU_AT_WORK.match(line)) is not None
        and int(match["memory"]) >= MIN_BUSY_MIB
        and int(match["load"]) >= MIN_BUSY_PERCENT
    }
    return f"{len(busy)} GPUs work" if len(busy) > 1 else ""


def _reason_if_only_one_gpu_is_there(evidence: Evidence) -> str:
    """The reason against a cause where there is one GPU, by nvidia-smi or by what a job asks for,
    and the user names no more; empty otherwise.
    """
    if re.search(
        r"\bgpus\b|\b[2-9] ?x\b|two|four|eight|cards|several", evidence.question, re.IGNORECASE
    ):
        return ""
    jobs = [
        int(number)
        for line in evidence.lines
        for found in JOB_GPUS.findall(line)
        for number in found
        if number
    ]
    if evidence.gpus == {0}:
        return "nvidia-smi lists one GPU"
    return "one GPU is asked for" if jobs and max(jobs) == 1 and not evidence.gpus else ""


def _reason_if_each_process_has_its_gpu(evidence: Evidence) -> str:
    """The reason against a cause where each process has a GPU of its own, set by a line or by the
    library's trainer; empty otherwise.
    """
    if evidence.line_matches(ALL_ON_FIRST) and not evidence.line_matches(
        re.compile(r"GPU [1-9]\d? has a total")
    ):
        return ""
    if evidence.line_matches(OWN_GPU_OF_RANK):
        return "each process has a GPU of its own"
    if evidence.trains_only_by_library_trainer and not evidence.line_matches(
        re.compile(r"device_map|\.cuda\(|\.to\(")
    ):
        return "the library's trainer gives each process a GPU of its own"
    return ""


def _reason_if_schedule_keeps_warm_up(evidence: Evidence) -> str:
    """The reason against a cause where the schedule has a warm-up, or no line sets one; empty
    otherwise.
    """
    names = {found for line in evidence.lines for found in SCHEDULE.findall(line)}
    if names and "constant" not in names:
        return f"the schedule is {min(names)}, which has a warm-up"
    if evidence.has_training_line and not evidence.line_matches(WARM_UP):
        return "no line sets a warm-up"
    return ""


def _reason_if_no_best_checkpoint_is_loaded(evidence: Evidence) -> str:
    """The reason against a cause where no line sets load_best_model_at_end, or the run went
    through; empty otherwise.
    """
    if evidence.has_training_line and not evidence.line_matches(LOADED_BEST):
        return "no line sets load_best_model_at_end"
    return _reason_if_log_shows_steps(evidence)


def _reason_if_log_shows_steps(evidence: Evidence) -> str:
    """The reason against a cause where a log shows that the run made steps; empty otherwise."""
    for log in evidence.logs:
        if not log.is_numbered and log.last_step >= MIN_LOSSES and log.curve("loss"):
            return f"the run made {log.last_step:,.0f} steps"
    return ""


def _reason_unless_llama_factory_can_resume(evidence: Evidence) -> str:
    """The reason against a cause where LLaMA-Factory is not here, or overwrites its output folder;
    empty otherwise.
    """
    if not evidence.line_matches(OF_LLAMA_FACTORY):
        return "no LLaMA-Factory is here" if evidence.has_training_line else ""
    return "overwrite_output_dir is true" if evidence.line_matches(OVERWRITES) else ""


def _reason_if_adapter_is_new(evidence: Evidence) -> str:
    """The reason against a cause where the adapter is made new, and none is loaded; empty
    otherwise.
    """
    if evidence.line_matches(NEW_ADAPTER) and not evidence.line_matches(LOADS_ADAPTER):
        return "the adapter is a new one, which is trainable"
    return ""


def _reason_if_labels_are_padded_with_ignore(evidence: Evidence) -> str:
    """The reason against a cause where labels are padded with -100, by a line or by the library's
    collator; empty otherwise.
    """
    if evidence.line_matches(PADS_LABELS) and not evidence.line_matches(COPIED_LABELS):
        return "labels are padded with -100"
    if evidence.trains_only_by_library_trainer and not evidence.line_matches(OWN_LABELS):
        return "the library's collator pads labels with -100"
    return ""


def _reason_if_train_and_eval_share_row_function(evidence: Evidence) -> str:
    """The reason against a cause where one function makes the rows of training and evaluation, or
    nothing evaluates; empty otherwise.
    """
    if not evidence.line_matches(EVALUATES):
        return "nothing here evaluates" if evidence.has_training_line else ""
    names = [found for line in evidence.lines for found in MAPPED_BY.findall(line)]
    makers = {name for name in names if name}
    if len(makers) == 1 and all(names):
        return f"one function makes all rows: {min(makers)}"
    return ""


def _reason_if_loss_stays_above_zero(evidence: Evidence) -> str:
    """The reason against a cause where each logged loss is well above 0, and no logged gradient
    norm is 0 throughout; empty otherwise.
    """
    losses, norms = evidence.logged_curves("loss"), evidence.logged_curves("grad_norm")
    if any(not norm.any() for norm in norms):
        return ""
    if losses and all(np.isfinite(one).all() and one.min() > LABELLED_LOSS for one in losses):
        return f"the loss is {min(float(one.min()) for one in losses):.3g} or more at each record"
    return ""


def _reason_if_weights_are_loaded(evidence: Evidence) -> str:
    """The reason against a cause where the weights of a model are loaded, and none is made from a
    config; empty otherwise.
    """
    if evidence.line_matches(FROM_PRETRAINED) and not evidence.line_matches(FROM_CONFIG):
        return "the weights of a model are loaded"
    return ""


def _reason_if_model_is_put_on_gpu(evidence: Evidence) -> str:
    """The reason against a cause where each script that generates puts the model on the GPU, or a
    server generates; empty otherwise.
    """
    files = evidence.lines_of_matching_files(BY_TRANSFORMERS)
    if not files and evidence.line_matches(GENERATES):
        return "a server generates"
    return "a line puts it on the GPU" if _is_there_file_and_all_match(files, ON_GPU) else ""


def _reason_if_weights_load_in_16_bits(evidence: Evidence) -> str:
    """The reason against a cause where weights are loaded in 16 bits, and none in 32; empty
    otherwise.
    """
    if evidence.line_matches(IN_16_BITS) and not evidence.line_matches(IN_32_BITS):
        return "weights are loaded in 16 bits"
    return ""


def _reason_if_only_bfloat16_is_used(evidence: Evidence) -> str:
    """The reason against a cause where all is computed in bfloat16, and nobody names float16; empty
    otherwise.
    """
    if (
        evidence.line_matches(IN_BFLOAT16)
        and not evidence.line_matches(IN_FLOAT16)
        and not evidence.user_says(IN_FLOAT16)
    ):
        return "all is computed in bfloat16"
    return ""


def _reason_if_answers_are_greedy(evidence: Evidence) -> str:
    """The reason against a cause where answers are greedy, and no line samples; empty otherwise."""
    return (
        "answers are greedy"
        if evidence.line_matches(GREEDY) and not evidence.line_matches(SAMPLES)
        else ""
    )


def _reason_if_first_node_address_is_set(evidence: Evidence) -> str:
    """The reason against a cause where the address of the first node is set, or there is one node;
    empty otherwise.
    """
    names = [found for line in evidence.lines for found in MASTER.findall(line)]
    if names and not any(map(LOCAL.search, names)):
        return "the address of the first node is set"
    return _reason_if_one_node_is_asked_for(evidence)


def _reason_if_one_node_is_asked_for(evidence: Evidence) -> str:
    """The reason against a cause where one node is asked for, and the user names no more; empty
    otherwise.
    """
    counts = [
        int(found)
        for line in evidence.lines
        for found in re.findall(r"(?:nnodes|num_machines|--nodes|-N)\W{1,3}(\d{1,4})\b", line)
    ]
    if counts and max(counts) == 1 and not re.search(r"nodes|machines", evidence.question):
        return "one node is asked for"
    return ""


def _reason_if_loss_has_no_reference_model(evidence: Evidence) -> str:
    """The reason against a cause where the loss that is set has no reference model; empty
    otherwise.
    """
    if evidence.line_matches(NO_REFERENCE) and not evidence.line_matches(HAS_REFERENCE):
        return "this loss has no reference"
    return ""


def _reason_if_wrapped_model_is_called(evidence: Evidence) -> str:
    """The reason against a cause where the model is wrapped, and no line calls model.module; empty
    otherwise.
    """
    if evidence.line_matches(UNWRAPPED) or not (
        evidence.trains_only_by_library_trainer or evidence.line_matches(WRAPS)
    ):
        return ""
    return "no line calls model.module"


def _reason_if_script_merges_and_nothing_trains(evidence: Evidence) -> str:
    """The reason against a cause where a script merges, and nothing here trains; empty otherwise."""
    return (
        "nothing here trains"
        if evidence.line_matches(MERGES) and not evidence.has_training_line
        else ""
    )


def _reason_if_generating_scripts_do_not_train(evidence: Evidence) -> str:
    """The reason against a cause where scripts generate, and none of them trains as well; empty
    otherwise.
    """
    for lines in evidence.lines_of_matching_files(BY_TRANSFORMERS):
        if any(TRAINS.search(line) or ".train()" in line for line in lines):
            return ""
    return "no script trains and generates" if evidence.line_matches(GENERATES) else ""


def _reason_if_there_is_no_log(evidence: Evidence) -> str:
    """The reason against a cause where there is no log; empty otherwise."""
    return "" if evidence.logs else "there is no log"


def _reason_if_library_distributes_rows(evidence: Evidence) -> str:
    """The reason against a cause where the library's trainer shares the rows out over the
    processes, and no line does so itself; empty otherwise.
    """
    own = re.compile(r"random_split|rank::|\[rank|DistributedSampler|\.shard\(|split_by")
    if evidence.trains_only_by_library_trainer and not evidence.line_matches(own):
        return "the library's trainer shares the rows out"
    return ""


ROWS: tuple[RuleOutRow, ...] = (
    make_rule_out_row(OF_PAIRS, _reason_if_only_rewards_are_trained),
    make_rule_out_row(
        r"^(?:the model is loaded before ZeRO-3 is known|DeepSpeed's buffers"
        r"|DeepSpeed's gradient buffers take gigabytes)",
        _reason_if_run_is_plain_ddp,
    ),
    make_rule_out_row(
        r"^(?:dropout is on in training alone|the loss of the evaluation depends on its batch size)",
        _reason_if_user_says_new_questions_fail,
    ),
    make_rule_out_row(r"^a warm-up is set, but the schedule", _reason_if_schedule_keeps_warm_up),
    make_rule_out_row(
        r"^(?:one process was started|the launch starts fewer processes|one process works on all|ms-swift without)",
        _reason_if_several_processes_are_started,
    ),
    make_rule_out_row(
        r"^(?:one GPU of several|one process was started|the launch starts fewer processes"
        r"|ms-swift without|every process puts its model"
        r"|layers on several GPUs|device_map='auto' on several|nn\.DataParallel|a model that one card holds"
        r"|Unsloth works on one)",
        _reason_if_only_one_gpu_is_there,
    ),
    make_rule_out_row(r"^one GPU of several", _reason_if_several_processes_are_started),
    make_rule_out_row(
        r"^one process was started, and the other GPUs", _reason_if_several_gpus_work
    ),
    make_rule_out_row(
        r"^(?:one process was started, and the other GPUs|GPUs are mostly idle|one GPU of several)",
        _reason_if_user_sees_all_gpus_busy,
    ),
    make_rule_out_row(
        r"^dropout is on in training alone",
        lambda evidence: (
            "it makes a loss higher or lower, and yours is nan"
            if evidence.user_says(re.compile(r"\bnan\b", re.IGNORECASE))
            else ""
        ),
    ),
    make_rule_out_row(r"^a perplexity that is the mean of exp", _reason_if_exp_is_of_mean_loss),
    make_rule_out_row(r"^one process works on all GPUs", _reason_if_user_starts_several_processes),
    make_rule_out_row(r"^gradients under FSDP1 are clipped", _reason_if_model_is_sharded_by_fsdp2),
    make_rule_out_row(
        r"^hidden states or attentions that the model returns are kept in the evaluation",
        _make_reason_unless_named(
            r"output_hidden_states|output_attentions", "output_hidden_states", of="any"
        ),
    ),
    make_rule_out_row(
        r"^gradient checkpointing is inactive: the model is in eval mode",
        _make_reason_if_line_matches(
            r"\.train\((?:True)?\)|Trainer\(", "the model is put in training mode"
        ),
    ),
    make_rule_out_row(
        r"^every process puts its model on GPU 0", _reason_if_each_process_has_its_gpu
    ),
    make_rule_out_row(
        r"^load_best_model_at_end is set, but checkpoints", _reason_if_no_best_checkpoint_is_loaded
    ),
    make_rule_out_row(
        r"before the first step|transformers stops where", _reason_if_log_shows_steps
    ),
    make_rule_out_row(
        r"^(?:FSDP is set to wrap|the checkpoint to resume from)", _reason_if_log_shows_steps
    ),
    make_rule_out_row(
        r"^LLaMA-Factory resumes an earlier run", _reason_unless_llama_factory_can_resume
    ),
    make_rule_out_row(r"^nothing is trainable", _reason_if_adapter_is_new),
    make_rule_out_row(r"^no token has a label", _reason_if_loss_stays_above_zero),
    make_rule_out_row(
        r"^labels are (?:padded with the pad|a plain copy of padded)",
        _reason_if_labels_are_padded_with_ignore,
    ),
    make_rule_out_row(
        r"^labels are a plain copy of padded",
        _make_reason_unless_named(COPIED_LABELS.pattern, "labels that are a copy"),
    ),
    make_rule_out_row(
        r"^the evaluation's rows are made by another function",
        _reason_if_train_and_eval_share_row_function,
    ),
    make_rule_out_row(r"^evaluated without the chat template", _reason_if_scripts_apply_template),
    make_rule_out_row(
        r"^apply_chat_template was called without", _reason_if_generation_prompt_is_added
    ),
    make_rule_out_row(
        r"^the prompt was decoded with the answer", _reason_if_prompt_is_cut_from_output
    ),
    make_rule_out_row(
        r"^special tokens are in the answers", _reason_if_decoding_skips_special_tokens
    ),
    make_rule_out_row(
        r"^(?:the loss of the evaluation depends|rows of the evaluation without a label|dropout is on in training)",
        _reason_if_no_evaluation_loss_is_named,
    ),
    make_rule_out_row(
        r"^rows of the evaluation without a label", _reason_if_evaluation_loss_is_finite
    ),
    make_rule_out_row(
        r"^(?:weights are NaN|the loss of a micro-batch is not finite)",
        _reason_if_training_loss_is_finite,
    ),
    make_rule_out_row(
        r"^(?:rows of the evaluation are in the training|a data set is listed twice"
        r"|the best of many checkpoints was chosen)",
        _reason_if_user_calls_score_too_bad,
    ),
    make_rule_out_row(
        r"^the batch grew with the processes", _reason_if_user_means_speed_or_failure
    ),
    make_rule_out_row(
        r"^a sampler without set_epoch",
        _make_test_giving_first_reason(
            _make_reason_if_line_matches(r"set_epoch\(", "set_epoch is called"),
            _make_reason_unless_named(r"Sampler", "a sampler"),
        ),
    ),
    make_rule_out_row(r"^a fine-tuning job starts from", _reason_if_weights_are_loaded),
    make_rule_out_row(r"^the model was never moved to the GPU", _reason_if_model_is_put_on_gpu),
    make_rule_out_row(r"^weights saved or merged in float32", _reason_if_weights_load_in_16_bits),
    make_rule_out_row(
        r"^activations or gradients overflow in float16", _reason_if_only_bfloat16_is_used
    ),
    make_rule_out_row(r"^activations overflow in float16", _reason_if_only_bfloat16_is_used),
    make_rule_out_row(r"^answers are sampled", _reason_if_answers_are_greedy),
    make_rule_out_row(r"^(?:the nodes wait at MASTER_ADDR)", _reason_if_first_node_address_is_set),
    make_rule_out_row(
        r"^(?:torchrun for several nodes|each node or task starts)",
        _reason_if_one_node_is_asked_for,
    ),
    make_rule_out_row(
        r"^each node or task starts a run of its own",
        _make_reason_if_line_matches(
            r"--(?:nnodes|num_machines)[= ][\"']?(?:\$|[2-9]|1\d)",
            "the number of nodes is given to the launchers",
        ),
    ),
    make_rule_out_row(
        r"^torchrun for several nodes is in the batch script without srun",
        lambda evidence: "srun starts it" if evidence.line_matches(BY_SRUN) else "",
    ),
    make_rule_out_row(
        r"^gradients are averaged at each micro-step",
        _make_test_giving_first_reason(
            _make_reason_if_line_matches(
                r"no_sync\(|accumulate\(", "no_sync or accumulate is used"
            ),
            lambda evidence: (
                "the library's trainer exchanges once a step"
                if evidence.trains_only_by_library_trainer
                else ""
            ),
        ),
    ),
    make_rule_out_row(
        r"^gradients are not averaged: the forward", _reason_if_wrapped_model_is_called
    ),
    make_rule_out_row(
        r"^each process shuffles or splits the rows another way",
        _reason_if_library_distributes_rows,
    ),
    make_rule_out_row(
        r"^device_map is set together with",
        _make_reason_unless_named(r"device_map", "a device_map", of="any"),
    ),
    make_rule_out_row(
        r"^device_map='auto' on several",
        _make_reason_unless_named(r"device_map", "a device_map", of="generation"),
    ),
    make_rule_out_row(
        r"^vLLM on the GPU that trains",
        lambda evidence: "" if evidence.has_training_line else "nothing here trains",
    ),
    make_rule_out_row(
        r"^the reference of a preference|^the reference model of a preference|^policy and reference"
        r"|policy and reference are the same",
        _reason_if_loss_has_no_reference_model,
    ),
    make_rule_out_row(
        r"^a script picks the worse answer",
        lambda evidence: (
            ""
            if evidence.line_matches(BUILDS_PAIRS) or not evidence.has_training_line
            else "no script here builds the pairs"
        ),
    ),
    make_rule_out_row(
        r"^a hand-written loss that breaks",
        lambda evidence: (
            "the loss is the library's"
            if evidence.trains_only_by_library_trainer and not evidence.line_matches(OWN_LOSS)
            else ""
        ),
    ),
    make_rule_out_row(
        r"^the trainer masks by `\{% generation",
        _make_reason_unless_named(
            r"assistant_only|assistant_masks|generation %\}", "assistant_only_loss"
        ),
    ),
    make_rule_out_row(
        r"^the optimizer and scheduler of ds_config",
        _make_reason_unless_named(r"(?i)deepspeed|zero_optimization|ds_config", "DeepSpeed"),
    ),
    make_rule_out_row(r"^Adafactor sets", _make_reason_unless_named(r"(?i)adafactor", "Adafactor")),
    make_rule_out_row(
        r"^an optimizer that scales nothing",
        _make_reason_unless_named(r"(?i)\bsgd\b|prompt.?tuning|prefix|lion", "SGD"),
    ),
    make_rule_out_row(
        r"^a classifier reads its answer off a pad|^the classifier's pad_token",
        _make_reason_unless_named(
            r"(?i)SequenceClassification|classif|num_labels", "a classifier", of="any"
        ),
    ),
    make_rule_out_row(
        r"^label smoothing of 0\.5",
        _make_reason_unless_named(r"label_smoothing|smoothing", "label_smoothing"),
    ),
    make_rule_out_row(
        r"^training_step of Lightning",
        _make_reason_unless_named(r"(?i)lightning|training_step", "Lightning"),
    ),
    make_rule_out_row(
        r"^Unsloth |switches off Unsloth's", _make_reason_unless_named(r"(?i)unsloth", "Unsloth")
    ),
    make_rule_out_row(r"^sacrebleu", _make_reason_unless_named(r"(?i)bleu", "BLEU", of="any")),
    make_rule_out_row(r"^ROUGE", _make_reason_unless_named(r"(?i)rouge", "ROUGE", of="any")),
    make_rule_out_row(
        r"^num_return_sequences",
        _make_reason_unless_named(
            r"num_return_sequences|best_of|\bn\s*=\s*[2-9]", "num_return_sequences", of="generation"
        ),
    ),
    make_rule_out_row(
        r"^windows of a strided perplexity",
        _make_reason_unless_named(
            r"(?i)perplex|\bppl\b|stride|begin_loc|window", "a perplexity", of="any"
        ),
    ),
    make_rule_out_row(
        r"^speculative decoding",
        _make_reason_unless_named(
            r"(?i)specul|draft|assistant_model|ngram", "a draft model", of="any"
        ),
    ),
    make_rule_out_row(
        r"^an async handler",
        _make_reason_unless_named(r"async |(?i:fastapi)", "an async handler", of="any"),
    ),
    make_rule_out_row(
        r"^CUDA_LAUNCH_BLOCKING",
        _make_reason_unless_named(
            r"CUDA_LAUNCH_BLOCKING|anomaly", "CUDA_LAUNCH_BLOCKING", of="any"
        ),
    ),
    make_rule_out_row(
        r"^CUDA_VISIBLE_DEVICES is set in the script",
        _make_reason_unless_named(r"CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", of="any"),
    ),
    make_rule_out_row(
        r"^vLLM is started on one of its GPUs",
        _make_reason_unless_named(r"(?i)vllm", "vLLM", of="any"),
    ),
    make_rule_out_row(
        r"^rows are divided by hash\(\) of a text",
        _make_reason_unless_named(r"\bhash\(", "hash()", of="any"),
    ),
    make_rule_out_row(
        r"^the area under a curve is computed from predicted classes",
        _make_reason_unless_named(r"(?i)auc|average_precision|roc|curve", "an AUC", of="any"),
    ),
    make_rule_out_row(
        r"^torch\.load without map_location",
        _make_reason_unless_named(r"torch\.load\(", "torch.load"),
    ),
    make_rule_out_row(
        r"^LLM\.int8",
        _make_reason_unless_named(r"load_in_8bit|int8|8bit", "load_in_8bit", of="generation"),
    ),
    make_rule_out_row(
        r"^(?:nn\.DataParallel|one process works on all GPUs)",
        _make_reason_if_line_matches(
            r"torchrun|accelerate launch|deepspeed --|nproc[-_]per",
            "processes are launched, one for each GPU",
        ),
    ),
    make_rule_out_row(
        r"^embeddings and head are trained whole", _reason_if_script_merges_and_nothing_trains
    ),
    make_rule_out_row(
        r"^the client waits for each answer",
        _make_reason_unless_named(
            r"OpenAI\(|requests\.|httpx|completions\.create|client|aiohttp|curl|/v1/",
            "a client",
            of="any",
        ),
    ),
    make_rule_out_row(r"^generate after the training", _reason_if_generating_scripts_do_not_train),
    make_rule_out_row(
        r"^torch\.compile or a static cache",
        _make_reason_unless_named(
            r"compile|static|cache_implementation", "torch.compile", of="any"
        ),
    ),
    make_rule_out_row(
        r"^one backward\(\) for many",
        _make_reason_unless_named(r"\.backward\(", "a hand-written loop"),
    ),
    make_rule_out_row(
        r"^gradient checkpointing is switched off|^gradient checkpointing, on by default",
        _make_reason_if_line_matches(
            r"(?<!disable_)gradient_checkpointing['\"]?\s*[=:]\s*[Tt]rue|gradient_checkpointing_enable\(",
            "gradient checkpointing is on",
        ),
    ),
    make_rule_out_row(
        r"^(?:DPO holds a second|chosen and rejected answers go)",
        _make_reason_unless_named(
            r"(?i)dpo|orpo|\bcpo|simpo|ref_model", "a training on preferences", of="any"
        ),
    ),
    make_rule_out_row(
        r"^(?:DeepSpeed's buffers|DeepSpeed's gradient buffers take gigabytes|ZeRO's stages 1 and 2)",
        _make_reason_unless_named(r"(?i)deepspeed|fsdp|zero", "DeepSpeed or FSDP", of="any"),
    ),
    make_rule_out_row(
        r"^device_map spreads", _make_reason_unless_named(r"device_map", "a device_map", of="any")
    ),
    make_rule_out_row(
        r"^rows of like length come",
        _make_reason_unless_named(
            r"group_by_length|[Ll]ength_?[Gg]rouped", "group_by_length", of="any"
        ),
    ),
    make_rule_out_row(
        r"^packing fills every row", _make_reason_unless_named(r"packing", "packing", of="any")
    ),
    make_rule_out_row(
        r"^weights were saved in float32",
        _make_reason_unless_named(r"(?i)float32|fp32", "float32", of="any"),
    ),
    make_rule_out_row(
        r"^the evaluation harness takes",
        _make_reason_unless_named(r"lm[_-]eval|lighteval", "a harness", of="any"),
    ),
    make_rule_out_row(
        r"^all prompts of a file",
        _make_reason_unless_named(r"\.generate\(", "generate()", of="any"),
    ),
    make_rule_out_row(
        r"^a mixture of experts",
        _make_reason_unless_named(
            r"(?i)-a\d+b|moe|mixtral|gpt-oss|expert", "a mixture of experts", of="any"
        ),
    ),
    make_rule_out_row(
        r"^(?:the server's cache|vLLM's share)",
        _make_reason_unless_named(
            r"(?i)vllm|llama-server|llama[_.]cpp|ollama|num_ctx|ggml", "a server", of="any"
        ),
    ),
    make_rule_out_row(
        r"^the job asks for no memory",
        _make_reason_unless_named(r"#SBATCH|(?i:slurm)|srun", "a job", of="any"),
    ),
    make_rule_out_row(
        r"^an adapter with DoRA", _make_reason_unless_named(r"(?i)dora", "DoRA", of="any")
    ),
    make_rule_out_row(r"^the log shows", _reason_if_there_is_no_log),
)
