"""Reads the settings of a run that its console output prints, as far as advice depends on them.

Trainers print what they were given: transformers `Instantaneous batch size per device = 1`, PEFT and LLaMA-Factory
`trainable params: ... || all params: ...`, Unsloth a banner, DeepSpeed its offloading. Advice that names what is in use
already sends the reader away, so rules look here first. What is not printed is None, never a default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

COUNT_GROUP = r"(?P<{}>[\d,]{{1,20}})"
SETTING_PATTERNS: tuple[tuple[str, str], ...] = (
    ("batch", r"Instantaneous batch size per device ?= ?" + COUNT_GROUP.format("batch")),
    ("batch", r"Batch size per device ?= ?" + COUNT_GROUP.format("batch")),
    (
        "batch",
        r"(?:per_device_train_batch_size|micro_batch_size)['\"]?\s?[:=]\s?"
        + COUNT_GROUP.format("batch"),
    ),
    (
        "batch",
        r"(?i:\bper[-_ ](?:gpu|device|rank|process)[-_ ](?:train[-_ ])?batch(?:[-_ ]size)?) ?[:=]? ?"
        + COUNT_GROUP.format("batch"),
    ),
    ("accumulation", r"Gradient [Aa]ccumulation steps ?= ?" + COUNT_GROUP.format("accumulation")),
    (
        "world",
        r"(?:[Ww]orld[ _]size|Num GPUs(?: used)?)['\"]?\s?[:=]\s?" + COUNT_GROUP.format("world"),
    ),
    ("world", r"Starting with " + COUNT_GROUP.format("world") + r" processes\b"),
    (
        "nodes",
        r"\b(?:nnodes|num_nodes|num_machines|[Nn]umber of nodes|SLURM_NNODES|SLURM_JOB_NUM_NODES)['\"]?\s?[:=]\s?"
        + COUNT_GROUP.format("nodes"),
    ),
    (
        "trained",
        r"trainable params: "
        + COUNT_GROUP.format("trained")
        + r" \|\| all params: "
        + COUNT_GROUP.format("parameters"),
    ),
    (
        "trained",
        r"Trainable parameters ?= ?"
        + COUNT_GROUP.format("trained")
        + r"(?:/| of )"
        + COUNT_GROUP.format("parameters"),
    ),
    (
        "trained",
        r"(?i:trainable(?: param(?:eter)?s)?) ?[:=] ?"
        + COUNT_GROUP.format("trained")
        + r"(?: ?(?:/|\|\||of|out of) ?(?i:(?:all|total)(?: param(?:eter)?s)?:? ?)?)"
        + COUNT_GROUP.format("parameters"),
    ),
    ("trained", r"Number of trainable parameters ?= ?" + COUNT_GROUP.format("trained")),
    (
        "checkpointing",
        r"Gradient checkpointing enabled|Using gradient checkpointing"
        r"|incompatible with gradient checkpointing|use_cache=False.{0,40}gradient checkpointing"
        r"|--gradient[-_]checkpointing(?![\w-])(?![ =]+(?:[Ff]alse|0|no)\b)"
        r"|gradient_checkpointing['\"]?\s?[:=]\s?[Tt]rue|Unsloth: Will smartly offload gradients",
    ),
    (
        "offload",
        r"Loading extension module cpu_adam|load cpu_adam op"
        r"|offload_(?:param|optimizer)['\"]?\s?[:=]\s?\{[^}]{0,80}['\"]device['\"]: ['\"](?:cpu|nvme)"
        r"|Offloading optimizer states to (?:CPU|NVMe)|fsdp_offload_params['\"]?\s?[:=]\s?[Tt]rue",
    ),
    (
        "sharded",
        r"\bZeRO-?3\b|ZeRO stage 3|[Ss]tage3|Parameter Offload:|zero3_init"
        r"|FullyShardedDataParallel|\bFSDP\b|fully_shard|tensor[_ ]parallel[_ ]size['\"]?\s?[:=]\s?[2-9]",
    ),
    ("longest", r"\bmax_input_len: " + COUNT_GROUP.format("longest")),
    ("examples", r"\bNum(?:ber of)? examples ?= ?" + COUNT_GROUP.format("examples")),
    (
        "steps",
        r"(?:Total optimization steps|Total steps) ?= ?"
        + COUNT_GROUP.format("steps")
        + r"|\btotal_num_steps: "
        + COUNT_GROUP.format("steps_of_axolotl"),
    ),
    (
        "rows_a_step",
        r"Total (?:train )?batch size(?: \([^)]{1,80}\))? ?= ?" + COUNT_GROUP.format("rows_a_step"),
    ),
    # `wc -l`, the line of datasets that counts what it read, and a script's own: `data/train.jsonl: 4800 rows`.
    (
        "rows_of_file",
        r"^\s*(?P<rows_of_file>\d{1,12})\s+\S{1,200}\.(?:jsonl|ndjson|csv|tsv)\s*$"
        r"|Generating train split: (?P<rows_read>\d{1,12}) examples"
        r"|train\S{0,80}\.(?:jsonl|ndjson|csv|tsv|parquet): (?P<rows_counted>\d{1,12}) (?:rows|examples|samples)\b",
    ),
    # The space before the bar's numbers is tqdm's; a name that speaks of an evaluation is no training set.
    (
        # Only rows that are left out for their length: duplicates and the like are left out on purpose.
        "rows_too_long",
        r"\b(?i:dropp?(?:ed|ing)|filter(?:ed|ing)(?: out)?|remov(?:ed|ing)|skipp(?:ed|ing)|discard(?:ed|ing))\s+"
        r"(?P<rows_too_long>\d[\d,_]{0,11})(?:(?: out)? of (?P<rows_before_drop>\d[\d,_]{0,11}))?\s+"
        r"(?:(?:over)?-?long|lengthy|too[- ]long|oversized)\s+(?:samples|rows|examples|sequences|prompts|conversations)"
        r"|\b(?i:dropp?(?:ed|ing)|filter(?:ed|ing)(?: out)?|remov(?:ed|ing)|skipp(?:ed|ing)|discard(?:ed|ing))\s+"
        r"(?P<rows_beyond_limit>\d[\d,_]{0,11})(?:(?: out)? of (?P<rows_before_limit>\d[\d,_]{0,11}))?\s+"
        r"(?:samples|rows|examples|sequences|prompts|conversations)\s+.{0,40}?"
        r"(?:longer than|too long|exceed|above the (?:length|limit)|over the (?:length|limit|maximum))",
    ),
    (
        "rows_mapped",
        r"^(?!.{0,60}(?:eval|test|valid|dev))\s*(?:Map\b|Tokenizing|Running tokenizer|Encod|Preprocess|Applying)"
        r"[^:%|]{0,80}:?\s+100%\|[^|]{0,200}\| *\d{1,12}/(?P<rows_mapped>\d{1,12}) ",
    ),
    ("peer_copies", r"\bvia P2P/\w"),
    (
        "half",
        r"\bfp16['\"]?(?:\s?[:=]\s?| )[Tt]rue\b|--fp16(?=\s*$|\s+--)|16-bits training: True"
        r"|mixed[_-]precision['\"]?(?:\s?[:=]\s?| )['\"]?fp16"
        r"|dtype['\"]?(?:\s?[:=]\s?| )['\"]?(?:torch\.)?(?:float16|fp16|half)\b",
    ),
    (
        "brain",
        r"\bbf16['\"]?(?:\s?[:=]\s?| )[Tt]rue\b|--bf16(?=\s*$|\s+-)|\bBfloat16 = TRUE\b"
        r"|mixed[_-]precision['\"]?(?:\s?[:=]\s?| )['\"]?bf16"
        r"|dtype['\"]?(?:\s?[:=]\s?| )['\"]?(?:torch\.)?(?:bfloat16|bf16)\b",
    ),
    (
        "fused_loss",
        r"use_liger(?:_kernel|_loss)?['\"]?(?:\s?[:=]\s?| )[Tt]rue\b|--use_liger_kernel(?=\s*$|\s+-)"
        r"|enable_liger_kernel['\"]?\s?[:=]\s?[Tt]rue|cut_cross_entropy['\"]?\s?[:=]\s?[Tt]rue",
    ),
    (
        "model",
        r"(?:--model(?:_name(?:_or_path)?)?|--base_model|--model-id"
        r"|\b(?:model_name_or_path|base_model|model_name|pretrained)['\"]?\s?[:=])[\s=]{0,2}['\"]?"
        r"(?!(?:True|False|None)\b)(?P<model>[\w./-]{3,200})",
    ),
    (
        "old_gpu",
        r"(?P<old_gpu>\b(?:Tesla )?(?:V100|T4|P100|P40)\b|\bQuadro RTX \d{4}\b|\b(?:GTX|RTX) (?:10|16|20)\d0\b)",
    ),
    (
        "gpu",
        r"\bNVIDIA (?P<gpu>(?:GeForce |RTX |Tesla |Quadro )*[A-Z]{0,3}\d{1,4}\w{0,12}(?:[- ]\w{1,20}){0,4})(?!\w)",
    ),
    (
        "engine_cache",
        r"(?:Available KV cache memory: |memory reserved for KV Cache is )(?P<engine_cache>\d{1,4}(?:\.\d{1,4})?) ?GiB",
    ),
    (
        "engine_apart",
        r"It took [\d.]+ seconds to fall asleep|vllm_mode['\"]?(?:\s?[:=]\s?| )['\"]?server|trl vllm-serve"
        r"|VLLMClient|vLLM API server version",
    ),
    (
        "learning_rate",
        r"--(?:learning[_-]rate|lr)[\s=]{1,2}(?P<learning_rate>\d{0,3}\.?\d{1,12}(?:e-?\d{1,2})?)\b",
    ),
    (
        # The options of a script as it prints them: `args: {"lr": 1e-05}`, `Namespace(lr=1e-05)`. A record of a step
        # begins otherwise.
        "learning_rate_of_options",
        r"^(?:\w{0,20}[ _]?(?:args|arguments|options)|Namespace)\s?[:=(]\s?(?:Namespace\()?[{]?.{0,2000}?"
        r"\b(?:learning_rate|lr)['\"]?\s?[:=]\s?(?P<learning_rate>\d{0,3}\.?\d{1,12}(?:e-?\d{1,2})?)\b",
    ),
    (
        "engine_optimizer",
        r"Using DeepSpeed Optimizer param name (?P<engine_optimizer>\w{1,40}) as basic optimizer",
    ),
    (
        "warmup_steps",
        r"--warmup[_-]steps[\s=]{1,2}" + COUNT_GROUP.format("warmup_steps") + r"(?![\w.])",
    ),
    (
        "adapter",
        r"\b(?:adapter|finetuning_type|peft_type|tuner_type|train_type|fine_tune_type)['\"]?(?:\s?[:=]\s?| )"
        r"['\"]?(?:PeftType\.)?(?:q?lora|dora|LORA)\b"
        r"|\buse_peft['\"]?(?:\s?[:=]\s?| )[Tt]rue\b|--use_peft(?=\s*$|\s+-)"
        r"|\bLoraConfig\(|Loading pretrained PEFT|Fine-tuning method: (?:LoRA|DoRA)",
    ),
    (
        "weights_loaded",
        r"Loading checkpoint shards: +100%|Loading weights: +100%|[Ll]oading weights file \S"
        r"|All the weights of \w+ were initialized from the model checkpoint",
    ),
    ("cores_idle", r"has Tensor Cores\. To properly utilize them"),
    (
        "mixed",
        r"Automatic Mixed Precision|Using (?:bfloat16|bf16|16[- ]?bit|half)|precision['\"]?\s?[:=]\s?['\"]?(?:bf)?16",
    ),
    (
        "weight_megabytes",
        r"(?P<weight_megabytes>\d[\d,]{0,11}(?:\.\d{1,6})?)\s+Total estimated model params size \(MB\)",
    ),
    ("smoothing", r"\b(?:dpo_)?label_smoothing['\"]?\s?[:=]\s?(?P<smoothing>0?\.\d{1,4})"),
)
"""What is printed -> how it reads; groups of a name hold its figure"""
COMPILED_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in SETTING_PATTERNS)
DECIMAL_GROUPS = ("smoothing", "engine_cache", "learning_rate", "weight_megabytes")
"""Groups that hold a number with a point"""
ROWS_OF_FILE_GROUPS = ("rows_of_file", "rows_read", "rows_counted")
TOO_LONG_GROUPS = ("rows_too_long", "rows_beyond_limit")
BEFORE_DROP_GROUPS = ("rows_before_drop", "rows_before_limit")
LARGEST_GROUPS = (*ROWS_OF_FILE_GROUPS, *TOO_LONG_GROUPS, *BEFORE_DROP_GROUPS, "rows_mapped")
"""Groups of which the largest number holds"""
NAME_GROUPS = ("model", "old_gpu", "gpu", "engine_optimizer")
"""Groups that hold a name; the first holds, as the command of a run stands above what it prints"""
SETTING_WORDS = (
    "Starting with ",
    "batch",
    "ccumulation",
    "orld",
    "GPUs",
    "nodes",
    "NODES",
    "num_machines",
    "rainable",
    "heckpoint",
    "ffload",
    "cpu_adam",
    "ZeRO",
    "tage 3",
    "tage3",
    "FSDP",
    "zero3",
    "fully_shard",
    "FullySharded",
    "tensor_parallel",
    "tensor parallel",
    "label_smoothing",
    "--learning",
    "--lr",
    "args",
    "options",
    "arguments",
    "Namespace(",
    "--warmup",
    "examples",
    " rows",
    " samples",
    "Total ",
    "total_num_steps",
    "via P2P",
    "fp16",
    "bf16",
    "liger",
    "cut_cross_entropy",
    "Bfloat16",
    "16-bits",
    "dtype",
    "--model",
    "model_name",
    "base_model",
    "pretrained",
    "NVIDIA ",
    "V100",
    "T4",
    "P100",
    "P40",
    "TX ",
    "KV cache memory",
    "KV Cache is",
    "fall asleep",
    "vllm",
    "vLLM API",
    "VLLMClient",
    "adapter",
    "finetuning_type",
    "peft",
    "PEFT",
    "tuner_type",
    "train_type",
    "fine_tune_type",
    "LoraConfig(",
    "Fine-tuning method",
    "max_input_len",
    "oading checkpoint",
    "oading weights",
    "All the weights",
    "Tensor Cores",
    "Precision",
    "precision",
    "Using ",
    "Generating train",
    ".jsonl",
    ".ndjson",
    ".csv",
    ".tsv",
    "examples/s",
    " sequences",
    " prompts",
    " conversations",
)
# What a line holds that any of the patterns fits: a search for words costs a tenth of the patterns. A new pattern needs
# its word here, or it is never tried.
SERVER_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "vLLM",
        re.compile(
            r"vLLM API server version|Engine \d{3}: Avg prompt throughput"
            r"|Avg (?:prompt|generation) throughput: .{0,120}Running: \d+ reqs?, "
        ),
    ),
    ("SGLang", re.compile(r"server_args=ServerArgs\(|Decode batch[,.] ?#running-req")),
    ("TGI", re.compile(r"text_generation_(?:launcher|router)(?:::|: )|compat_generate\{")),
    (
        "llama.cpp",
        re.compile(
            r"llama_(?:model_loader|new_context_with_model|context|kv_cache\w*)?: |slot"
            r" launch_slot_|main: server is listening"
        ),
    ),
    (
        "Ollama",
        re.compile(
            r"source=(?:server|routes|sched)\.go:\d+|\[GIN\] .{1,80}\"/api/(?:generate|chat)\""
        ),
    ),
    (
        "an HTTP server",
        re.compile(
            r"Uvicorn running on http|\"(?:POST|GET) /(?:v1|generate|predict)\S* HTTP/1\.\d\" \d{3}"
        ),
    ),
)
"""Programs that answer requests, and what only their logs hold; the first that fits names the log.

A typed command is none of it: it stands at the head of notes, results and transcripts as well.
"""
VLLM_LINE = re.compile(r"\b(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w/]+\.py:\d+\]")
"""A line of vLLM's log"""
SERVER_WORDS = (
    "vLLM",
    "Engine ",
    "throughput",
    "ServerArgs",
    "Decode batch",
    "generation",
    "compat_generate",
    "llama_",
    "slot ",
    "main: server",
    "source=",
    "[GIN]",
    "Uvicorn",
    "HTTP/1.",
)
# the same for SERVER_PATTERNS


# LoRA of rank 256 on all layers of an 8B model trains 8 %; two whole layers of 32, as freezing does, are 5 % of it, and
# an adapter that trains the embedding as well needs the rates of all weights.
MAX_ADAPTER_SHARE = 0.04
"""Of all parameters, below which it is an adapter that is trained"""


@dataclass(frozen=True, slots=True)
class PrintedSettings:
    """What the output says of the run; None or empty where it does not."""

    batch: int | None = None
    """Rows that one device takes at a time"""
    accumulation: int | None = None
    world: int | None = None
    """Processes of the run"""
    nodes: int | None = None
    trained: int | None = None
    parameters: int | None = None
    checkpointing: bool = False
    offload: bool = False
    """Parameters or optimizer states are in the machine's memory"""
    sharded: bool = False
    """Each process holds a part of the weights alone (FSDP, ZeRO-3, tensor parallelism)"""
    longest: int | None = None
    """Tokens of the longest row, as the trainer counted them"""
    examples: int | None = None
    """Rows of an epoch, as the trainer counted them"""
    steps: int | None = None
    """Optimizer steps that are planned"""
    rows_a_step: int | None = None
    """Rows of one optimizer step, over all processes"""
    peer_copies: bool = False
    """NCCL copies from GPU to GPU directly (P2P)"""
    smoothing: float | None = None
    """Label smoothing of a preference loss"""
    learning_rate: float | None = None
    """The peak that a command sets, or options that are printed"""
    engine_optimizer: str = ""
    """The optimizer that DeepSpeed made itself, from its settings"""
    warmup_steps: int | None = None
    """Steps of warm-up that a command sets"""
    half: bool = False
    """Weights or activations are float16"""
    brain: bool = False
    """Weights or activations are bfloat16"""
    fused_loss: bool = False
    """The loss is computed by a kernel that never holds all logits"""
    model: str = ""
    """The model as a command names it"""
    old_gpu: str = ""
    """A GPU of the machine that computes no bfloat16 (before Ampere)"""
    adapter: bool = False
    """The settings that are printed are those of an adapter (LoRA)"""
    weights_loaded: bool = False
    """Weights of a saved model were read (`Loading checkpoint shards: 100%`)"""
    gpu: str = ""
    """The GPU, by the name that its driver gives"""
    engine_cache: float | None = None
    """GiB that an engine for generation (vLLM) has reserved for its cache"""
    engine_apart: bool = False
    """The engine is a server of its own, or gives its memory back while the training runs"""
    cores_idle: bool = False
    """Lightning warns that matrices are multiplied in float32, without the tensor cores that the GPU has"""
    mixed: bool = False
    """Something is computed in 16 bits (autocast, or a precision of a trainer)"""
    weight_megabytes: float | None = None
    """Of all weights, as Lightning sums them by its precision: 4 bytes for each where it is 32 or mixed"""
    server: str = ""
    """The program that answers requests, where this is its log"""
    rows_of_file: int | None = None
    """Rows of the largest data file, as `wc -l` or datasets counted them"""
    rows_mapped: int | None = None
    """Rows of the largest set that was tokenized or mapped, those of evaluations left out"""
    rows_too_long: int | None = None
    """Rows that were left out because they are longer than the limit; of several sets the most"""
    rows_before_drop: int | None = None
    """The rows that these were left out of, where the line says so"""

    @property
    def share(self) -> float | None:
        """The share of the parameters that are trained; None if it is not printed."""
        return self.trained / self.parameters if self.trained and self.parameters else None

    @property
    def trains_adapter(self) -> bool:
        """Is an adapter trained, by its settings or by its share of the parameters?"""
        share = self.share
        return share < MAX_ADAPTER_SHARE if share is not None else self.adapter


@dataclass(slots=True)
class SettingsReader:
    """Collects what lines print of settings: of several values the last holds, as of several runs in one file."""

    _counts: dict[str, int] = field(default_factory=dict)
    _flags: set[str] = field(default_factory=set)
    _figures: dict[str, float] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _server: str = ""
    _is_vllm_started: bool = False

    def add_line(self, text: str) -> None:
        """Read one line without its prefixes."""
        if not self._server:
            self._server = self._server_of_line(text)
        if not any(word in text for word in SETTING_WORDS):
            return
        for name, pattern in COMPILED_PATTERNS:
            match = pattern.search(text)
            if match is not None:
                self._keep_match(name, match)

    def _server_of_line(self, text: str) -> str:
        """The inference server whose log a line is from; empty if it does not show it."""
        self._is_vllm_started = self._is_vllm_started or "vllm serve " in text
        # The command and a line of vLLM's own behind it: the same lines without it are of an engine inside of a script.
        if self._is_vllm_started and VLLM_LINE.search(text):
            return "vLLM"
        if not any(word in text for word in SERVER_WORDS):
            return ""
        return next((name for name, pattern in SERVER_PATTERNS if pattern.search(text)), "")

    def finish(self) -> PrintedSettings:
        """The settings that were printed."""
        count = self._counts.get
        return PrintedSettings(
            batch=count("batch"),
            accumulation=count("accumulation"),
            world=count("world"),
            nodes=count("nodes"),
            trained=count("trained"),
            parameters=count("parameters"),
            checkpointing="checkpointing" in self._flags,
            offload="offload" in self._flags,
            sharded="sharded" in self._flags,
            longest=count("longest"),
            examples=count("examples"),
            steps=count("steps") or count("steps_of_axolotl"),
            rows_a_step=count("rows_a_step"),
            peer_copies="peer_copies" in self._flags,
            smoothing=self._figures.get("smoothing"),
            learning_rate=self._figures.get("learning_rate"),
            engine_optimizer=self._names.get("engine_optimizer", ""),
            warmup_steps=count("warmup_steps"),
            half="half" in self._flags,
            brain="brain" in self._flags,
            fused_loss="fused_loss" in self._flags,
            model=self._names.get("model", ""),
            old_gpu=self._names.get("old_gpu", ""),
            gpu=self._names.get("gpu", ""),
            adapter="adapter" in self._flags,
            weights_loaded="weights_loaded" in self._flags,
            engine_cache=self._figures.get("engine_cache"),
            engine_apart="engine_apart" in self._flags,
            cores_idle="cores_idle" in self._flags,
            mixed="mixed" in self._flags,
            weight_megabytes=self._figures.get("weight_megabytes"),
            server=self._server,
            rows_of_file=max(count(name) or 0 for name in ROWS_OF_FILE_GROUPS) or None,
            rows_mapped=count("rows_mapped"),
            rows_too_long=max(count(name) or 0 for name in TOO_LONG_GROUPS) or None,
            rows_before_drop=max(count(name) or 0 for name in BEFORE_DROP_GROUPS) or None,
        )

    def _keep_match(self, name: str, match: re.Match[str]) -> None:
        """Keep what a pattern's groups hold; a pattern without groups is a flag by its name."""
        groups = match.groupdict()
        if not groups:
            self._flags.add(name)
        for group, value in groups.items():
            if group in DECIMAL_GROUPS:
                self._figures[group] = float(value.replace(",", ""))
                continue
            if group in NAME_GROUPS:
                self._names.setdefault(group, value)
                continue
            digits = (value or "").replace(",", "").replace("_", "")
            if not digits.isdecimal():
                continue
            # an evaluation prints its own number of examples behind that of the training
            if group == "examples" and group in self._counts:
                continue
            # Of several files and sets, the training's is the largest.
            earlier = self._counts.get(group, 0) if group in LARGEST_GROUPS else 0
            self._counts[group] = max(int(digits), earlier)
