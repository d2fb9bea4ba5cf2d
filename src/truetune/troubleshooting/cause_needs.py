"""What a cause needs to be possible at all, and which settings speak against it.

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

from truetune.checks.explaining.project_traits import GENERATES, TRAINS
from truetune.troubleshooting.evidence import MIN_LOSSES, Evidence, Row, make_row

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


def _unless(pattern: str, label: str, *, of: str = "training") -> Callable[[Evidence], str]:
    """A row's test: the cause needs a thing that no line and no word names.

    Args:
        pattern: how a line or the user's words show the thing.
        label: the thing, as a reader calls it.
        of: what has to be among the files before the lack says something: `training`, `generation` or `any`.
    """
    needed = re.compile(pattern)

    def test(evidence: Evidence) -> str:
        if evidence.asks(needed) or evidence.has(needed) or not _can_tell(evidence, of):
            return ""
        return f"no line here has {label}"

    return test


def _rewards_alone_are_trained(evidence: Evidence) -> str:
    """Is there a trainer of rewards, and none of pairs or labels?"""
    if evidence.has(BY_REWARDS) and not evidence.has(BY_PAIRS) and not evidence.asks(BY_PAIRS):
        return "answers are trained by rewards here, and no pairs"
    return ""


def _can_tell(evidence: Evidence, of: str) -> bool:
    """Do the files show what would have the thing?"""
    if of == "training":
        return evidence.trains
    if of == "generation":
        return evidence.has(GENERATES)
    return bool(evidence.lines)


def _if_a_line_has(pattern: str, reason: str) -> Callable[[Evidence], str]:
    """A row's test: a line speaks against the cause."""
    refuting = re.compile(pattern)
    return lambda evidence: reason if evidence.has(refuting) else ""


def _first_of(*tests: Callable[[Evidence], str]) -> Callable[[Evidence], str]:
    """A row's test: the first reason of several."""
    return lambda evidence: next((reason for test in tests if (reason := test(evidence))), "")


def _asking_files(evidence: Evidence) -> list[Sequence[str]]:
    """The files that ask a model."""
    return evidence.files_with(ASKS)


def _all_have(files: Sequence[Sequence[str]], pattern: re.Pattern[str]) -> bool:
    """Is there a file, and does each show it?"""
    return bool(files) and all(any(map(pattern.search, lines)) for lines in files)


def _template_is_applied(evidence: Evidence) -> str:
    applied = _all_have(_asking_files(evidence), APPLIES_TEMPLATE)
    return "each script that asks applies the chat template" if applied else ""


def _header_is_asked_for(evidence: Evidence) -> str:
    files = _asking_files(evidence)
    rendering = [lines for lines in files if any("apply_chat_template" in line for line in lines)]
    if files and not rendering:
        return "no script that asks calls apply_chat_template"
    return "add_generation_prompt=True is set" if _all_have(rendering, WRITES_HEADER) else ""


def _prompt_is_cut_off(evidence: Evidence) -> str:
    files = evidence.files_with(BY_TRANSFORMERS)
    if not files and _asking_files(evidence):
        return "answers come from a server, which sends the answer alone"
    return (
        "the prompt is cut off from what generate returns" if _all_have(files, CUTS_PROMPT) else ""
    )


def _marks_are_skipped(evidence: Evidence) -> str:
    if evidence.has(SKIPS_MARKS) and not evidence.has(KEEPS_MARKS):
        return "skip_special_tokens=True is set"
    return ""


def _nobody_speaks_of_an_evaluation_loss(evidence: Evidence) -> str:
    if evidence.asks(OF_EVALUATION_LOSS) or evidence.curves("eval_loss"):
        return ""
    return "nobody speaks of a loss of the evaluation"


def _evaluation_loss_is_finite(evidence: Evidence) -> str:
    curves = [log.curve("eval_loss") for log in evidence.logs if log.curve("eval_loss")]
    asked = re.search(r"\bnan\b|\b0(?:\.0+)?\b(?!\.?\d)|zero", evidence.question, re.IGNORECASE)
    finite = curves and all(np.isfinite(one.value).all() and one.value.min() > 0 for one in curves)
    return "each logged eval_loss is a number" if finite and not asked else ""


def _losses_are_finite(evidence: Evidence) -> str:
    losses = evidence.curves("loss")
    asked = re.search(r"\bnan\b|\binf|!!!|\b0\.0\b|zero", evidence.question, re.IGNORECASE)
    raw = [log.curve("loss").value for log in evidence.logs]
    if (
        losses
        and not asked
        and all(np.isfinite(one).all() and one.min() > 0 for one in raw if one.size)
    ):
        return "each logged loss is a number above 0"
    return ""


def _measure_is_too_bad(evidence: Evidence) -> str:
    if evidence.asks(TOO_BAD) and not evidence.asks(TOO_GOOD):
        return "it makes a score too good, and you speak of one that is too bad"
    return ""


def _answers_to_new_questions_fail(evidence: Evidence) -> str:
    if evidence.asks(FAILS_ON_NEW):
        return (
            "it explains a difference of two losses, and you say that answers to new questions fail"
        )
    return ""


def _runs_plain_ddp(evidence: Evidence) -> str:
    return "the output says that the run is plain DDP" if evidence.has(PLAIN_DDP) else ""


def _is_of_speed_or_failure(evidence: Evidence) -> str:
    if evidence.asks(OF_SPEED_OR_FAILURE) and not evidence.asks(OF_QUALITY):
        return "it changes what is learned, and you speak of speed or of a failure"
    return ""


def _process_counts(evidence: Evidence) -> set[int]:
    """How many processes lines name, 1 among them."""
    return {int(found) for line in evidence.lines for found in NUMBER_OF_PROCESSES.findall(line)}


def _many_processes_run(evidence: Evidence) -> str:
    counts = _process_counts(evidence)
    if counts and min(counts) > 1 and not evidence.has(SINGLE_PROCESS):
        return f"{max(counts)} processes are started"
    return ""


def _shards_by_fsdp2(evidence: Evidence) -> str:
    """Is the model sharded by FSDP2, whose parameters torch's clipping knows how to add up?"""
    if evidence.has(BY_FSDP1):
        return ""
    if evidence.has(BY_FSDP2) or re.search(r"(?i)fsdp ?v?2|fully_shard", evidence.question):
        return "FSDP2 is used, whose norm clip_grad_norm_ takes over all processes"
    return ""


def _exponential_of_one_loss(evidence: Evidence) -> str:
    """Is exp taken of a loss that is the mean already, wherever it is taken?"""
    lines = [line for line in evidence.lines if TAKES_EXP.search(line)]
    if lines and all(map(EXP_OF_MEAN.search, lines)) and not evidence.has(COLLECTS_PERPLEXITIES):
        return "exp is taken of the one mean loss"
    return ""


def _user_starts_several(evidence: Evidence) -> str:
    """Do the user's words name the launcher that starts a process for each GPU?"""
    launched = re.compile(r"torchrun|accelerate launch|\bFSDP|\bDDP\b|fully_shard", re.IGNORECASE)
    return "you start a process for each GPU" if evidence.asks(launched) else ""


def _user_sees_all_gpus_busy(evidence: Evidence) -> str:
    """Do the user's words say that the GPUs are at work?"""
    return "you see all GPUs at work" if evidence.asks(ALL_GPUS_BUSY) else ""


def _several_gpus_work(evidence: Evidence) -> str:
    """Do two GPUs or more work, by what nvidia-smi or the Trainer prints?"""
    if evidence.has(OVER_GPUS):
        return "the model is run on several GPUs"
    busy = {
        match["index"]
        for line in evidence.lines
        if (match := GPU_AT_WORK.match(line)) is not None
        and int(match["memory"]) >= MIN_BUSY_MIB
        and int(match["load"]) >= MIN_BUSY_PERCENT
    }
    return f"{len(busy)} GPUs work" if len(busy) > 1 else ""


def _one_gpu_is_there(evidence: Evidence) -> str:
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


def _each_process_has_its_gpu(evidence: Evidence) -> str:
    if evidence.has(ALL_ON_FIRST) and not evidence.has(re.compile(r"GPU [1-9]\d? has a total")):
        return ""
    if evidence.has(OWN_GPU_OF_RANK):
        return "each process has a GPU of its own"
    if evidence.trains_by_library and not evidence.has(re.compile(r"device_map|\.cuda\(|\.to\(")):
        return "the library's trainer gives each process a GPU of its own"
    return ""


def _schedule_has_a_warm_up(evidence: Evidence) -> str:
    names = {found for line in evidence.lines for found in SCHEDULE.findall(line)}
    if names and "constant" not in names:
        return f"the schedule is {min(names)}, which has a warm-up"
    if evidence.trains and not evidence.has(WARM_UP):
        return "no line sets a warm-up"
    return ""


def _no_best_is_loaded(evidence: Evidence) -> str:
    if evidence.trains and not evidence.has(LOADED_BEST):
        return "no line sets load_best_model_at_end"
    return _run_went_through(evidence)


def _run_went_through(evidence: Evidence) -> str:
    for log in evidence.logs:
        if not log.is_numbered and log.last_step >= MIN_LOSSES and log.curve("loss"):
            return f"the run made {log.last_step:,.0f} steps"
    return ""


def _no_run_to_resume(evidence: Evidence) -> str:
    if not evidence.has(OF_LLAMA_FACTORY):
        return "no LLaMA-Factory is here" if evidence.trains else ""
    return "overwrite_output_dir is true" if evidence.has(OVERWRITES) else ""


def _adapter_is_new(evidence: Evidence) -> str:
    if evidence.has(NEW_ADAPTER) and not evidence.has(LOADS_ADAPTER):
        return "the adapter is a new one, which is trainable"
    return ""


def _labels_are_padded_rightly(evidence: Evidence) -> str:
    if evidence.has(PADS_LABELS) and not evidence.has(COPIED_LABELS):
        return "labels are padded with -100"
    if evidence.trains_by_library and not evidence.has(OWN_LABELS):
        return "the library's collator pads labels with -100"
    return ""


def _one_function_makes_the_rows(evidence: Evidence) -> str:
    if not evidence.has(EVALUATES):
        return "nothing here evaluates" if evidence.trains else ""
    names = [found for line in evidence.lines for found in MAPPED_BY.findall(line)]
    makers = {name for name in names if name}
    if len(makers) == 1 and all(names):
        return f"one function makes all rows: {min(makers)}"
    return ""


def _loss_is_above_zero(evidence: Evidence) -> str:
    losses, norms = evidence.curves("loss"), evidence.curves("grad_norm")
    if any(not norm.any() for norm in norms):
        return ""
    if losses and all(np.isfinite(one).all() and one.min() > LABELLED_LOSS for one in losses):
        return f"the loss is {min(float(one.min()) for one in losses):.3g} or more at each record"
    return ""


def _weights_are_loaded(evidence: Evidence) -> str:
    if evidence.has(FROM_PRETRAINED) and not evidence.has(FROM_CONFIG):
        return "the weights of a model are loaded"
    return ""


def _is_put_on_the_gpu(evidence: Evidence) -> str:
    files = evidence.files_with(BY_TRANSFORMERS)
    if not files and evidence.has(GENERATES):
        return "a server generates"
    return "a line puts it on the GPU" if _all_have(files, ON_GPU) else ""


def _is_loaded_in_16_bits(evidence: Evidence) -> str:
    if evidence.has(IN_16_BITS) and not evidence.has(IN_32_BITS):
        return "weights are loaded in 16 bits"
    return ""


def _no_float16(evidence: Evidence) -> str:
    if evidence.has(IN_BFLOAT16) and not evidence.has(IN_FLOAT16) and not evidence.asks(IN_FLOAT16):
        return "all is computed in bfloat16"
    return ""


def _answers_are_greedy(evidence: Evidence) -> str:
    return "answers are greedy" if evidence.has(GREEDY) and not evidence.has(SAMPLES) else ""


def _master_is_a_node(evidence: Evidence) -> str:
    names = [found for line in evidence.lines for found in MASTER.findall(line)]
    if names and not any(map(LOCAL.search, names)):
        return "the address of the first node is set"
    return _one_node(evidence)


def _one_node(evidence: Evidence) -> str:
    counts = [
        int(found)
        for line in evidence.lines
        for found in re.findall(r"(?:nnodes|num_machines|--nodes|-N)\W{1,3}(\d{1,4})\b", line)
    ]
    if counts and max(counts) == 1 and not re.search(r"nodes|machines", evidence.question):
        return "one node is asked for"
    return ""


def _no_reference_is_used(evidence: Evidence) -> str:
    if evidence.has(NO_REFERENCE) and not evidence.has(HAS_REFERENCE):
        return "this loss has no reference"
    return ""


def _forward_is_wrapped(evidence: Evidence) -> str:
    if evidence.has(UNWRAPPED) or not (evidence.trains_by_library or evidence.has(WRAPS)):
        return ""
    return "no line calls model.module"


def _merges_alone(evidence: Evidence) -> str:
    return "nothing here trains" if evidence.has(MERGES) and not evidence.trains else ""


def _no_script_trains_and_asks(evidence: Evidence) -> str:
    for lines in evidence.files_with(BY_TRANSFORMERS):
        if any(TRAINS.search(line) or ".train()" in line for line in lines):
            return ""
    return "no script trains and generates" if evidence.has(GENERATES) else ""


def _no_log(evidence: Evidence) -> str:
    return "" if evidence.logs else "there is no log"


def _library_shares_out(evidence: Evidence) -> str:
    own = re.compile(r"random_split|rank::|\[rank|DistributedSampler|\.shard\(|split_by")
    if evidence.trains_by_library and not evidence.has(own):
        return "the library's trainer shares the rows out"
    return ""


ROWS: tuple[Row, ...] = (
    make_row(OF_PAIRS, _rewards_alone_are_trained),
    make_row(
        r"^(?:the model is loaded before ZeRO-3 is known|DeepSpeed's buffers)", _runs_plain_ddp
    ),
    make_row(
        r"^(?:dropout is on in training alone|the loss of the evaluation depends on its batch size)",
        _answers_to_new_questions_fail,
    ),
    make_row(r"^a warm-up is set, and the schedule has none", _schedule_has_a_warm_up),
    make_row(
        r"^(?:one process was started|one process works on all|ms-swift without)",
        _many_processes_run,
    ),
    make_row(
        r"^(?:one GPU of several|one process was started|ms-swift without|every process puts its model"
        r"|layers on several GPUs|device_map='auto' on several|nn\.DataParallel|a model that one card holds"
        r"|Unsloth works on one)",
        _one_gpu_is_there,
    ),
    make_row(r"^one GPU of several", _many_processes_run),
    make_row(r"^one process was started, and the other GPUs", _several_gpus_work),
    make_row(
        r"^(?:one process was started, and the other GPUs|GPUs are mostly idle|one GPU of several)",
        _user_sees_all_gpus_busy,
    ),
    make_row(
        r"^dropout is on in training alone",
        lambda evidence: (
            "it makes a loss higher or lower, and yours is nan"
            if evidence.asks(re.compile(r"\bnan\b", re.IGNORECASE))
            else ""
        ),
    ),
    make_row(r"^a perplexity that is the mean of exp", _exponential_of_one_loss),
    make_row(r"^one process works on all GPUs", _user_starts_several),
    make_row(r"^gradients under FSDP1 are clipped", _shards_by_fsdp2),
    make_row(
        r"^hidden states or attentions that the model returns are kept in the evaluation",
        _unless(r"output_hidden_states|output_attentions", "output_hidden_states", of="any"),
    ),
    make_row(
        r"^gradient checkpointing is inactive: the model is in eval mode",
        _if_a_line_has(r"\.train\((?:True)?\)|Trainer\(", "the model is put in training mode"),
    ),
    make_row(r"^every process puts its model on GPU 0", _each_process_has_its_gpu),
    make_row(r"^the best model is to be loaded", _no_best_is_loaded),
    make_row(r"before the first step|transformers stops where", _run_went_through),
    make_row(r"^(?:FSDP shall wrap|the checkpoint to resume from is not)", _run_went_through),
    make_row(r"^LLaMA-Factory resumes the run", _no_run_to_resume),
    make_row(r"^nothing is trainable", _adapter_is_new),
    make_row(r"^no token has a label", _loss_is_above_zero),
    make_row(
        r"^labels are (?:padded with the pad|a plain copy of padded)", _labels_are_padded_rightly
    ),
    make_row(
        r"^labels are a plain copy of padded",
        _unless(COPIED_LABELS.pattern, "labels that are a copy"),
    ),
    make_row(r"^the evaluation's rows are made by another function", _one_function_makes_the_rows),
    make_row(r"^evaluated without the chat template", _template_is_applied),
    make_row(r"^apply_chat_template was called without", _header_is_asked_for),
    make_row(r"^the prompt was decoded with the answer", _prompt_is_cut_off),
    make_row(r"^special tokens stand in the answers", _marks_are_skipped),
    make_row(
        r"^(?:the loss of the evaluation depends|rows of the evaluation without a label|dropout is on in training)",
        _nobody_speaks_of_an_evaluation_loss,
    ),
    make_row(r"^rows of the evaluation without a label", _evaluation_loss_is_finite),
    make_row(r"^(?:weights are NaN|the loss of a micro-batch is not finite)", _losses_are_finite),
    make_row(
        r"^(?:rows of the evaluation stand in the training|a data set is listed twice"
        r"|the best of many checkpoints was chosen)",
        _measure_is_too_bad,
    ),
    make_row(r"^the batch grew with the processes", _is_of_speed_or_failure),
    make_row(
        r"^a sampler without set_epoch",
        _first_of(
            _if_a_line_has(r"set_epoch\(", "set_epoch is called"),
            _unless(r"Sampler", "a sampler"),
        ),
    ),
    make_row(r"^a job that is to fine-tune starts from random", _weights_are_loaded),
    make_row(r"^the model was never moved to the GPU", _is_put_on_the_gpu),
    make_row(r"^weights saved or merged in float32", _is_loaded_in_16_bits),
    make_row(r"^activations or gradients overflow in float16", _no_float16),
    make_row(r"^activations overflow in float16", _no_float16),
    make_row(r"^answers are sampled", _answers_are_greedy),
    make_row(r"^(?:the nodes wait at MASTER_ADDR)", _master_is_a_node),
    make_row(r"^(?:torchrun for several nodes|each node or task starts)", _one_node),
    make_row(
        r"^each node or task starts a run of its own",
        _if_a_line_has(
            r"--(?:nnodes|num_machines)[= ][\"']?(?:\$|[2-9]|1\d)",
            "the number of nodes is given to the launchers",
        ),
    ),
    make_row(
        r"^torchrun for several nodes stands in the batch script without srun",
        lambda evidence: "srun starts it" if evidence.has(BY_SRUN) else "",
    ),
    make_row(
        r"^gradients are averaged at each micro-step",
        _first_of(
            _if_a_line_has(r"no_sync\(|accumulate\(", "no_sync or accumulate is used"),
            lambda evidence: (
                "the library's trainer exchanges once a step" if evidence.trains_by_library else ""
            ),
        ),
    ),
    make_row(r"^gradients are not averaged: the forward", _forward_is_wrapped),
    make_row(r"^each process shuffles or splits the rows another way", _library_shares_out),
    make_row(
        r"^DeepSpeed ZeRO-3 or FSDP is given a device map",
        _unless(r"device_map", "a device_map", of="any"),
    ),
    make_row(
        r"^device_map='auto' on several",
        _unless(r"device_map", "a device_map", of="generation"),
    ),
    make_row(
        r"^vLLM on the GPU that trains",
        lambda evidence: "" if evidence.trains else "nothing here trains",
    ),
    make_row(
        r"^the reference of a preference|^policy and reference|policy and reference are the same",
        _no_reference_is_used,
    ),
    make_row(
        r"^a script picks the worse answer",
        lambda evidence: (
            ""
            if evidence.has(BUILDS_PAIRS) or not evidence.trains
            else "no script here builds the pairs"
        ),
    ),
    make_row(
        r"^a loss of one's own that breaks",
        lambda evidence: (
            "the loss is the library's"
            if evidence.trains_by_library and not evidence.has(OWN_LOSS)
            else ""
        ),
    ),
    make_row(
        r"^the trainer takes its mask from",
        _unless(r"assistant_only|assistant_masks|generation %\}", "assistant_only_loss"),
    ),
    make_row(
        r"^the optimizer and scheduler of ds_config",
        _unless(r"(?i)deepspeed|zero_optimization|ds_config", "DeepSpeed"),
    ),
    make_row(r"^Adafactor sets", _unless(r"(?i)adafactor", "Adafactor")),
    make_row(
        r"^an optimizer that scales nothing",
        _unless(r"(?i)\bsgd\b|prompt.?tuning|prefix|lion", "SGD"),
    ),
    make_row(
        r"^a classifier reads its answer off a pad|^the classifier's pad_token",
        _unless(r"(?i)SequenceClassification|classif|num_labels", "a classifier", of="any"),
    ),
    make_row(r"^label smoothing of 0\.5", _unless(r"label_smoothing|smoothing", "label_smoothing")),
    make_row(r"^training_step of Lightning", _unless(r"(?i)lightning|training_step", "Lightning")),
    make_row(r"^Unsloth |switches off Unsloth's", _unless(r"(?i)unsloth", "Unsloth")),
    make_row(r"^sacrebleu", _unless(r"(?i)bleu", "BLEU", of="any")),
    make_row(r"^ROUGE", _unless(r"(?i)rouge", "ROUGE", of="any")),
    make_row(
        r"^num_return_sequences",
        _unless(
            r"num_return_sequences|best_of|\bn\s*=\s*[2-9]", "num_return_sequences", of="generation"
        ),
    ),
    make_row(
        r"^windows of a strided perplexity",
        _unless(r"(?i)perplex|\bppl\b|stride|begin_loc|window", "a perplexity", of="any"),
    ),
    make_row(
        r"^speculative decoding",
        _unless(r"(?i)specul|draft|assistant_model|ngram", "a draft model", of="any"),
    ),
    make_row(r"^an async handler", _unless(r"async |(?i:fastapi)", "an async handler", of="any")),
    make_row(
        r"^CUDA_LAUNCH_BLOCKING",
        _unless(r"CUDA_LAUNCH_BLOCKING|anomaly", "CUDA_LAUNCH_BLOCKING", of="any"),
    ),
    make_row(
        r"^CUDA_VISIBLE_DEVICES is set in the script",
        _unless(r"CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", of="any"),
    ),
    make_row(r"^vLLM is started on one of its GPUs", _unless(r"(?i)vllm", "vLLM", of="any")),
    make_row(
        r"^rows are divided by hash\(\) of a text",
        _unless(r"\bhash\(", "hash()", of="any"),
    ),
    make_row(
        r"^the area under a curve is computed from predicted classes",
        _unless(r"(?i)auc|average_precision|roc|curve", "an AUC", of="any"),
    ),
    make_row(r"^torch\.load without map_location", _unless(r"torch\.load\(", "torch.load")),
    make_row(r"^LLM\.int8", _unless(r"load_in_8bit|int8|8bit", "load_in_8bit", of="generation")),
    make_row(
        r"^(?:nn\.DataParallel|one process works on all GPUs)",
        _if_a_line_has(
            r"torchrun|accelerate launch|deepspeed --|nproc[-_]per",
            "processes are launched, one for each GPU",
        ),
    ),
    make_row(r"^embeddings and head are trained whole", _merges_alone),
    make_row(
        r"^the client waits for each answer",
        _unless(
            r"OpenAI\(|requests\.|httpx|completions\.create|client|aiohttp|curl|/v1/",
            "a client",
            of="any",
        ),
    ),
    make_row(r"^generate after the training", _no_script_trains_and_asks),
    make_row(
        r"^torch\.compile or a static cache",
        _unless(r"compile|static|cache_implementation", "torch.compile", of="any"),
    ),
    make_row(r"^one backward\(\) for many", _unless(r"\.backward\(", "a loop of one's own")),
    make_row(
        r"^gradient checkpointing is switched off",
        _if_a_line_has(
            r"(?<!disable_)gradient_checkpointing['\"]?\s*[=:]\s*[Tt]rue|gradient_checkpointing_enable\(",
            "gradient checkpointing is on",
        ),
    ),
    make_row(
        r"^(?:DPO holds a second|chosen and rejected answers go)",
        _unless(r"(?i)dpo|orpo|\bcpo|simpo|ref_model", "a training on preferences", of="any"),
    ),
    make_row(
        r"^(?:DeepSpeed's buffers|ZeRO's stages 1 and 2)",
        _unless(r"(?i)deepspeed|fsdp|zero", "DeepSpeed or FSDP", of="any"),
    ),
    make_row(r"^device_map spreads", _unless(r"device_map", "a device_map", of="any")),
    make_row(
        r"^rows of like length come",
        _unless(r"group_by_length|[Ll]ength_?[Gg]rouped", "group_by_length", of="any"),
    ),
    make_row(r"^packing fills every row", _unless(r"packing", "packing", of="any")),
    make_row(r"^weights were saved in float32", _unless(r"(?i)float32|fp32", "float32", of="any")),
    make_row(
        r"^the evaluation harness takes", _unless(r"lm[_-]eval|lighteval", "a harness", of="any")
    ),
    make_row(r"^all prompts of a file", _unless(r"\.generate\(", "generate()", of="any")),
    make_row(
        r"^a mixture of experts",
        _unless(r"(?i)-a\d+b|moe|mixtral|gpt-oss|expert", "a mixture of experts", of="any"),
    ),
    make_row(
        r"^(?:the server's cache|vLLM's share)",
        _unless(r"(?i)vllm|llama-server|llama[_.]cpp|ollama|num_ctx|ggml", "a server", of="any"),
    ),
    make_row(
        r"^the job asks for no memory", _unless(r"#SBATCH|(?i:slurm)|srun", "a job", of="any")
    ),
    make_row(r"^an adapter with DoRA", _unless(r"(?i)dora", "DoRA", of="any")),
    make_row(r"^the log says", _no_log),
)
