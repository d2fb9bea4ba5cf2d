"""Recognises traits of a project that causes of a symptom depend on: DPO, a quantized base, several
processes, an own loop.

One row of `TRAIT_READINGS` says of each trait how a line of code, settings, commands or output shows it, and how a text
mentions it. The text of a cause mentions what it takes, a user's question what they have. So a new cause or rule needs
no list of its own: its text declares its preconditions. The trade-off: a word is read as a precondition where it stands
in what is wrong, and not where it stands in the fix; texts that begin with what is wrong, and only then tell the fix,
are read rightly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Literal


class Trait(Enum):
    """What a project does or has."""

    PREFERENCE = auto()
    REINFORCEMENT = auto()
    ADAPTER = auto()
    QUANTIZATION = auto()
    HALF_PRECISION = auto()
    BFLOAT16 = auto()
    SEVERAL_PROCESSES = auto()
    SEVERAL_NODES = auto()
    DEEPSPEED = auto()
    FSDP = auto()
    DEVICE_MAP = auto()
    GRADIENT_CHECKPOINTING = auto()
    ACCUMULATION = auto()
    PACKING = auto()
    OWN_LOOP = auto()
    OWN_COLLATOR = auto()
    SCHEDULER = auto()
    RATE = auto()
    CLIPPING = auto()
    RESUME = auto()
    EVALUATION = auto()
    KEPT_BEST = auto()
    COMPUTED_METRICS = auto()
    HARNESS = auto()
    PERPLEXITY = auto()
    OVERLAP_METRIC = auto()
    PARSED_ANSWERS = auto()
    CLASSIFICATION = auto()
    SPLIT = auto()
    TRUNCATION = auto()
    LENGTH_LIMIT = auto()
    PADDING = auto()
    PADDING_SIDE = auto()
    STOP_TOKEN = auto()
    STOP_STRINGS = auto()
    CHAT_TEMPLATE = auto()
    SYSTEM_PROMPT = auto()
    ANSWER_MASK = auto()
    ADDED_TOKENS = auto()
    GENERATION = auto()
    SAMPLING = auto()
    REPETITION_LIMIT = auto()
    BEAMS = auto()
    CACHE = auto()
    STREAMING = auto()
    MERGE = auto()
    VLLM = auto()
    OLLAMA = auto()
    LLAMA_CPP = auto()
    OTHER_SERVER = auto()
    SERVER = auto()
    CLIENT = auto()
    VISION = auto()
    EXPERTS = auto()
    THINKING = auto()
    TOOLS = auto()
    COMPILED = auto()
    OFFLOAD = auto()
    CONTAINER = auto()
    FRAMEWORK_SETTINGS = auto()
    STATE_DICT = auto()
    SAVING = auto()
    LOADER = auto()
    SHUFFLING = auto()
    SEED = auto()
    REENTRANT = auto()
    LIGHTNING = auto()
    SWIFT = auto()
    TORCHTUNE = auto()
    UNSLOTH = auto()
    AXOLOTL = auto()
    LLAMA_FACTORY = auto()


Area = Literal["training", "generation", "any", "default"]


@dataclass(frozen=True, slots=True)
class TraitReading:
    """How a trait is seen in files and in texts."""

    trait: Trait
    area: Area
    """What of a project has to be there before the lack of the trait says something; `default`: it is there by itself,
    and only a line that switches it off says that it is not"""
    label: str
    """As a reader calls it: `the project has no ...`"""
    shown_by: re.Pattern[str]
    """In a line of code, settings, commands or output"""
    named_by: re.Pattern[str]
    """In the text of a cause, a rule or a question"""
    is_needed: bool = True
    """May its lack exclude a cause? Not of what is there by default, or what another machine may have"""


def _compile_trait_reading(
    trait: Trait, area: Area, label: str, shown: str, named: str, *, is_needed: bool = True
) -> TraitReading:
    """The reading of a trait, with the patterns compiled: how code (`shown`) and texts (`named`)
    show it.
    """
    return TraitReading(
        trait, area, label, re.compile(shown), re.compile(named, re.IGNORECASE), is_needed
    )


TRAIT_READINGS: tuple[TraitReading, ...] = (
    _compile_trait_reading(Trait.PREFERENCE, "training", "preference training",
         r"\b(DPO|ORPO|KTO|CPO|SimPO|IPO)(Trainer|Config|Script)|rewards/(chosen|rejected|margins)"
         r"|\b(rl|rlhf_type|rlhf-type|stage)\W+(dpo|orpo|kto|simpo)|pref_beta|logsigmoid"
         r"|\bref(erence)?_(model|logp)",
         r"\bDPO\b|\bORPO\b|\bKTO\b|preference|\bmargins?\b|both sides|rejected (answer|side)"
         r"|chosen"),
    _compile_trait_reading(Trait.REINFORCEMENT, "training", "reinforcement learning",
         r"\b(GRPO|RLOO|PPO)(Trainer|Config)|reward_funcs?|reward_std|num_generations",
         r"\bGRPO\b|\bRLOO\b|\bPPO\b|reward function|reward_std|advantages|rollout"),
    _compile_trait_reading(Trait.ADAPTER, "any", "an adapter",
         r"LoraConfig|PeftModel|get_peft_model|lora_(r|rank|alpha|target|dropout)\b"
         r"|adapter\s*[:=]|peft_config"
         r"|finetuning_type\W+lora|FastLanguageModel|--enable-lora|--lora|adapter_config"
         r"|adapter_model",
         r"\blora\b|\bqlora\b|adapters?\b|\bpeft\b|lora_alpha|modules_to_save|\bDoRA\b"),
    _compile_trait_reading(Trait.QUANTIZATION, "any", "quantized weights",
         r"load_in_[48]bit|BitsAndBytesConfig|bnb_4bit|\bnf4\b|\b(gptq|awq)\b|AWQ|GPTQ"
         r"|quantization_(bit|config|method)"
         r"|\bq[2-8]_(k|0)\w*|--quantization|QuantizationConfig|adamw_8bit",
         r"\b[48][- ]?bits?\b|quantiz|bitsandbytes|\bbnb\w*|\bnf4\b|\bgptq\b|\bawq\b|\bint8\b"
         r"|q4_k_m|\bqlora\b"),
    _compile_trait_reading(Trait.HALF_PRECISION, "any", "float16",
         r"float16(?<!bfloat16)|\bfp16\b|\.half\(\)|--dtype half|GradScaler|precision\W+16",
         r"(?<!b)float16|\bfp16\b|half precision|loss scale|\bscaler\b"),
    _compile_trait_reading(Trait.BFLOAT16, "any", "bfloat16",
         r"bfloat16|\bbf16\b",
         r"bfloat16|\bbf16\b", is_needed=False),
    _compile_trait_reading(Trait.SEVERAL_PROCESSES, "training", "several processes or GPUs",
         r"torchrun|nproc[-_]per[-_]node|accelerate launch|num_processes\W+([2-9]|1\d)"
         r"|deepspeed\b|DistributedDataParallel"
         r"|init_process_group|LOCAL_RANK|WORLD_SIZE|NPROC_PER_NODE|torch\.distributed"
         r"|mp\.spawn|world_size"
         r"|tensor[-_]parallel[-_]size|--num_gpus|gres=gpu:([2-9]|\w+:[2-9])"
         r"|gpus-per-node\W+[2-9]|devices\s*=\s*[2-9]"
         r"|\bNCCL\b|Accelerator\(|DataParallel|CUDA_VISIBLE_DEVICES=\d,",
         r"each process|every process|processes|\branks?\b|\bDDP\b|several gpus|one process"
         r"|all gpus|\b[2-9] gpus"
         r"|\bNCCL\b|distributed|multi[- ]?gpu|(two|four|eight|both|all) (gpus|cards|a100s?"
         r"|h100s?)|\d+ ?x ?[ahl]\d+"
         r"|\b([2-9]|\d\d) (gpus?|cards|a100s?|h100s?|ranks)|device_map"),
    _compile_trait_reading(Trait.SEVERAL_NODES, "training", "several nodes",
         r"nnodes|num_machines|machine_rank|MASTER_ADDR|#SBATCH.*(--nodes|-N)\W+[2-9]|rdzv"
         r"|hostfile",
         r"\bnodes\b|several machines|two machines|MASTER_ADDR|each node|\bsrun\b"),
    _compile_trait_reading(Trait.DEEPSPEED, "any", "DeepSpeed",
         r"(?i)deepspeed|zero_optimization|zero_?stage|\bzero3",
         r"deepspeed|\bzero[- ]?[123]\b|offload_optimizer"),
    _compile_trait_reading(Trait.FSDP, "any", "FSDP", r"(?i)\bfsdp|FullyShardedDataParallel|fully_shard", r"\bfsdp"),
    _compile_trait_reading(Trait.DEVICE_MAP, "any", "a device_map", r"device_map", r"device_map"),
    _compile_trait_reading(Trait.GRADIENT_CHECKPOINTING, "training", "gradient checkpointing",
         r"gradient_checkpointing|use_reentrant|checkpoint_activations",
         r"gradient[ _]checkpointing|reentrant"),
    _compile_trait_reading(Trait.ACCUMULATION, "training", "gradient accumulation",
         r"accumulation|grad_accum|accumulate\(|accum_steps|\bACC(UM)?\b", r"accumulat|micro[- ]?(step|batch)"),
    _compile_trait_reading(Trait.PACKING, "training", "packing",
         r"\b(sample_)?packing\b|neat_packing|padding_free|packed|position_ids",
         r"\bpack(ed|ing)\b|padding[-_]free"),
    _compile_trait_reading(Trait.OWN_LOOP, "training", "a training loop of its own",
         r"\.backward\(|optimizer\.step\(|optim\.step\(|opt\.step\(|training_step",
         r"hand-written loops?|own loop|optimizer never steps|cleared gradients|zero_grad"
         r"|training loop|custom loop|"
         r"own \w+ loop|loop (builds|that|keeps)|hand[- ]written"),
    _compile_trait_reading(Trait.OWN_COLLATOR, "training", "a collator or labels of its own",
         r"labels\s*\[|labels\W+=|\"labels\"\]?\s*[:=]|'labels'\]?\s*[:=]|def \w*collat|-100\b"
         r"|ignore_index",
         r"collator|labels? (are )?shifted|shifted twice|labels of their own"
         r"|copy of (padded )?input_ids|-100"),
    _compile_trait_reading(Trait.SCHEDULER, "training", "a schedule of the rate",
         r"scheduler|warmup|lr_lambda|num_training_steps|OneCycle|CosineAnnealing",
         r"schedul|warm-?up|steps of the rate"),
    _compile_trait_reading(Trait.RATE, "training", "a learning rate",
         r"\b(learning_rate|lr|learning-rate|learningRate)\b\s*[:=]|--lr\b|lr=",
         r"learning rate|\brates?\b",
         is_needed=False),
    _compile_trait_reading(Trait.CLIPPING, "training", "gradient clipping",
         r"max_grad_norm|clip_grad|gradient_clip",
         r"\bclip(ped|ping)?\b"),
    _compile_trait_reading(Trait.RESUME, "training", "a resumed run",
         r"resume|load_state\(|Continuing training from|trainer_state"
         r"|last_checkpoint",
         r"\bresum|continu(ed|es) (from|training)|restart|from a checkpoint"),
    _compile_trait_reading(Trait.EVALUATION, "any", "an evaluation",
         r"eval(uation)?_(strategy|steps|dataset|loss|file|set)|\.evaluate\(|do_eval"
         r"|val_(set_size|loss|size)|validation|def eval",
         r"\beval(uation)?\b|validation|eval_loss|held-out|test set"),
    _compile_trait_reading(Trait.KEPT_BEST, "training", "the best checkpoint kept",
         r"load_best_model_at_end|metric_for_best|EarlyStopping|early_stopping|save_total_limit"
         r"|best_(loss|acc|model)",
         r"best checkpoint|best model is|early stopping|load_best_model|metric_for_best"),
    _compile_trait_reading(Trait.COMPUTED_METRICS, "any", "compute_metrics",
         r"compute_metrics|preprocess_logits_for_metrics|argmax|EvalPrediction",
         r"compute_metrics|token accuracy|argmax|teacher forcing"),
    _compile_trait_reading(Trait.HARNESS, "any", "an evaluation harness",
         r"lm[-_]eval|lighteval|evalplus|opencompass|simple_evaluate|--tasks\b|num_fewshot",
         r"lm[-_]eval|lighteval|harness|few-?shot|\bMMLU\b|GSM8K|benchmark"),
    _compile_trait_reading(Trait.PERPLEXITY, "any", "a perplexity",
         r"(?i)perplexity|\bppl\b|exp\(",
         r"perplexit|\bppl\b"),
    _compile_trait_reading(Trait.OVERLAP_METRIC, "any", "BLEU or ROUGE",
         r"(?i)bleu|rouge|meteor|bertscore|chrf",
         r"\bbleu|rouge|chrf"),
    _compile_trait_reading(Trait.PARSED_ANSWERS, "any", "a parser of answers",
         r"re\.(search|findall|match|compile)|json\.loads|\.split\(|exact_match|startswith"
         r"|\bin (pred|answer|out)|boxed|####",
         r"\bparse[rsd]?\b|exact match|pattern|reference is searched|regular expression"),
    _compile_trait_reading(Trait.CLASSIFICATION, "any", "labels of classes",
         r"ForSequenceClassification|f1_score|accuracy_score|classification_report|num_labels"
         r"|id2label|label2id|macro|softmax|CLASSES|LABELS",
         r"one class|classes\b|multi-?label|\bmacro\b|micro F1|label names|multiple choice"
         r"|classif|class is"),
    _compile_trait_reading(Trait.SPLIT, "any", "a split of the rows",
         r"train_test_split|random_split|val_set_size|test_size|\[:\s*-?\w+\].*(train|test|val)"
         r"|split\s*=|rows\[\w*:|train_size",
         r"\bsplit|are in the training data|leak|held-out rows"),
    _compile_trait_reading(Trait.TRUNCATION, "any", "a cut of long texts",
         r"truncat|max_(seq_)?length|cutoff_len|max_seq_len|sequence_len|model_max_length"
         r"|block_size|max_prompt_length",
         r"truncat|cut off|cut at|max_length|cut away|\bcuts?\b", is_needed=False),
    _compile_trait_reading(Trait.LENGTH_LIMIT, "any", "a limit of answers",
         r"max_(new_)?tokens|num_predict|max_length\s*=|n_predict|max_completion",
         r"max_(new_)?tokens|runs? to the limit|token limit",
         is_needed=False),
    _compile_trait_reading(Trait.PADDING, "any", "padded batches",
         r"pad(ding|_token|_to|_sequence|_id)?\b|pad_token|DataCollator",
         r"\bpad(s|ded|ding)?\b",
         is_needed=False),
    _compile_trait_reading(Trait.PADDING_SIDE, "any", "padded prompts",
         r"padding_side|padding\s*=\s*(True|['\"])",
         r"padded on the|right padding|left padding|padding side"),
    _compile_trait_reading(Trait.STOP_TOKEN, "any", "a stop token",
         r"eos_token|eot_id|im_end|</s>|pad_token\s*=|stop_token|terminators|endoftext",
         r"\beos\b|stop token|\bstops?\b|end-of-turn|end of turn",
         is_needed=False),
    _compile_trait_reading(Trait.STOP_STRINGS, "generation", "stop strings",
         r"\bstop\s*=|stop_strings|\"stop\"|PARAMETER stop|StoppingCriteria",
         r"stop strings?|stop=|stop sequences"),
    _compile_trait_reading(Trait.CHAT_TEMPLATE, "any", "a chat template",
         r"chat[-_]template|\btemplate\s*[:=]|add_generation_prompt|im_start|### (Instruction"
         r"|Response)|TEMPLATE|\[INST\]|format_(prompt|example|row)|prompt_template",
         r"template|another prompt|format of (the )?training|generation_prompt"
         r"|headers?\b", is_needed=False),
    _compile_trait_reading(Trait.SYSTEM_PROMPT, "any", "a system prompt",
         r"(?i)\bsystem(_prompt|_message)?\b",
         r"system (prompt|message|text)|persona"),
    _compile_trait_reading(Trait.ANSWER_MASK, "training", "a mask of prompts",
         r"train_on_responses_only|response_(template|part)|completion_only|assistant_only"
         r"|train_on_inputs|train_on_prompt|mask_history|-100",
         r"response (template|marker)|no token has a label|masked|answers? only"
         r"|supervised", is_needed=False),
    _compile_trait_reading(Trait.ADDED_TOKENS, "any", "added tokens",
         r"add_tokens|add_special_tokens\(|resize_token_embeddings|additional_special_tokens|\bnew_tokens"
         r"|setup_chat_format|trainable_token_indices",
         r"added tokens|tokens (that|which) the training added|new tokens|embeddings? (rows"
         r"|resized)|special tokens were added"),
    _compile_trait_reading(Trait.GENERATION, "any", "generation",
         r"\.generate\(|pipeline\(|SamplingParams|chat\.completions|completions\.create"
         r"|create_chat_completion|ollama|predict_with_generate|/v1/|ollama run|\bvllm serve",
         r"generat|\banswers are drawn|asked\b", is_needed=False),
    _compile_trait_reading(Trait.SAMPLING, "generation", "sampling settings",
         r"temperature|top_[pk]\b|do_sample|min_p",
         r"temperature|do_sample|sampled|greed|top_[pk]"),
    _compile_trait_reading(Trait.REPETITION_LIMIT, "generation", "a penalty on repetitions",
         r"repet\w*_penalty|no_repeat_ngram|presence_penalty|frequency_penalty|repeat_penalty",
         r"repetition_penalty|no_repeat_ngram|presence_penalty|forbids what has to be repeated"),
    _compile_trait_reading(Trait.BEAMS, "generation", "beam search",
         r"num_beams|beam|num_return_sequences|best_of",
         r"\bbeams?\b|num_beams|num_return_sequences"),
    _compile_trait_reading(Trait.CACHE, "any", "a setting of the cache",
         r"use_cache|past_key_values|gpu[-_]memory[-_]utilization|max[-_]model[-_]len|kv_cache"
         r"|cache_implementation",
         r"use_cache|past_key_values|key-value cache|\bKV cache", is_needed=False),
    _compile_trait_reading(Trait.STREAMING, "generation", "streamed answers",
         r"(?i)stream",
         r"stream(ing|ed|er)\b|decoded alone|token by token"),
    _compile_trait_reading(Trait.MERGE, "generation", "a merge or an export",
         r"merge_and_unload|merge_adapter|export_(dir|model)|mergekit|save_pretrained_(merged"
         r"|gguf)|merge-lora|convert_(hf|lora)|add_weighted_adapter|llamafactory-cli export",
         r"\bmerg(e|ed|es|ing)\b|\bexport(s|ed)?\b|convert(ed|er)\b"),
    _compile_trait_reading(Trait.VLLM, "generation", "vLLM", r"(?i)\bvllm\b", r"\bvllm\b|SamplingParams"),
    _compile_trait_reading(Trait.OLLAMA, "generation", "Ollama",
         r"(?i)\bollama\b|^FROM \S+gguf|^PARAMETER ",
         r"\bollama\b|modelfile|num_ctx"),
    _compile_trait_reading(Trait.LLAMA_CPP, "generation", "llama.cpp",
         r"(?i)llama[._-]?cpp|llama-(cli|server|quantize)|gguf|n_gpu_layers|llama_model_load",
         r"llama[._-]?cpp|\bgguf\b|-ngl\b"),
    _compile_trait_reading(Trait.OTHER_SERVER, "generation", "SGLang, TGI or TensorRT",
         r"(?i)sglang|text-generation-(inference|launcher)|tensorrt|triton_server",
         r"\bsglang\b|\bTGI\b|tensorrt"),
    _compile_trait_reading(Trait.SERVER, "any", "a server",
         r"(?i)fastapi|flask|uvicorn|gradio|@app\.|\bserve\b|api_server|http\.server",
         r"fastapi|async handler|\bserver\b|served|\bserve[sd]?\b|the app\b", is_needed=False),
    _compile_trait_reading(Trait.CLIENT, "any", "a client",
         r"OpenAI\(|base_url|requests\.post|httpx|chat/completions|curl ",
         r"\bclient\b|request", is_needed=False),
    _compile_trait_reading(Trait.VISION, "any", "images",
         r"(?i)pixel|image(?!s?['\"]?\s*:\s*['\"]?[\w.-]+[/:])|(?<![a-z])vision|\bvl\b|\bprocessor\(",
         r"\bimages?\b|pixels|vision"),
    _compile_trait_reading(Trait.EXPERTS, "any", "a mixture of experts",
         r"(?i)mixtral|\bmoe\b|A3B|A22B|experts?|router_aux",
         r"mixture of experts|\bmoe\b|expert|router"),
    _compile_trait_reading(Trait.THINKING, "any", "a model that thinks",
         r"(?i)think|qwen3|reasoning|deepseek-r1|QwQ",
         r"think|reason(s|ing)"),
    _compile_trait_reading(Trait.TOOLS, "any", "tools",
         r"\btools?\b|tool_calls?|function_call|bind_tools",
         r"\btools?\b|function call"),
    _compile_trait_reading(Trait.COMPILED, "any", "torch.compile",
         r"torch\.compile|torch_compile|cache_implementation|_orig_mod",
         r"torch\.compile|compil(ed|es)|_orig_mod"),
    _compile_trait_reading(Trait.OFFLOAD, "any", "an offload",
         r"offload|n_gpu_layers|max_memory|cpu_offload",
         r"offload"),
    _compile_trait_reading(Trait.CONTAINER, "any", "a container",
         r"(?i)docker|shm|apptainer|singularity|kubernetes|^FROM ",
         r"container|/dev/shm|docker"),
    _compile_trait_reading(Trait.FRAMEWORK_SETTINGS, "training", "LLaMA-Factory or Axolotl",
         r"(?i)llama-?factory|axolotl|dataset_info|cutoff_len|sample_packing|base_model\s*:"
         r"|finetuning_type|ms-?swift|swift sft|tune run",
         r"its framework|the framework"),
    _compile_trait_reading(Trait.STATE_DICT, "any", "weights loaded by hand",
         r"load_state_dict|state_dict|torch\.load|strict\s*=|safe_open|load_file\(",
         r"state_dict|strict=|torch\.load|module\. or _orig_mod"),
    _compile_trait_reading(Trait.SAVING, "training", "saving",
         r"save_(pretrained|model|steps|strategy|state)|torch\.save",
         # `modules to save` are those of an adapter, and `save_strategy` says nothing of them.
         r"(?<!modules to )\bsav(ed|es|ing|e)\b", is_needed=False),
    _compile_trait_reading(Trait.LOADER, "training", "a loader of its own",
         r"DataLoader\(|Sampler|IterableDataset|streaming\s*=|rows\[rank|\.shard\(",
         r"loader|sampler|set_epoch|a stream\b"),
    _compile_trait_reading(Trait.SHUFFLING, "training", "shuffling",
         r"shuffle|sort\(|sorted\(|group_by_length",
         r"shuffl|sorted|order of (the )?rows"),
    _compile_trait_reading(Trait.SEED, "any", "a seed",
         r"\bseed\b|manual_seed|set_seed",
         r"\bseed(s|ed)?\b", is_needed=False),
    _compile_trait_reading(Trait.REENTRANT, "default", "reentrant checkpoints", r"use_reentrant", r"\breentrant\b"),
    _compile_trait_reading(Trait.LIGHTNING, "training", "Lightning",
         r"(?i)lightning|\bpl\.Trainer|def training_step",
         r"\blightning\b"),
    _compile_trait_reading(Trait.SWIFT, "training", "ms-swift", r"(?i)\bswift\b", r"\bms-swift\b|\bswift\b"),
    _compile_trait_reading(Trait.TORCHTUNE, "training", "torchtune",
         r"(?i)torchtune|\btune run\b",
         r"\btorchtune\b"),
    _compile_trait_reading(Trait.UNSLOTH, "training", "Unsloth",
         r"(?i)unsloth|FastLanguageModel|FastModel",
         r"\bunsloth\b"),
    _compile_trait_reading(Trait.AXOLOTL, "training", "Axolotl",
         r"(?i)axolotl|\bsequence_len\s*:|\bmicro_batch_size\s*:",
         r"\baxolotl\b"),
    _compile_trait_reading(Trait.LLAMA_FACTORY, "training", "LLaMA-Factory",
         r"(?i)llama-?factory|\bcutoff_len|finetuning_type|dataset_info|\bdataset_dir",
         r"\bllama-?factory\b"),
)  # fmt: skip

UNTELLING = frozenset(
    (
        Trait.PREFERENCE, Trait.REINFORCEMENT, Trait.ADAPTER, Trait.BFLOAT16, Trait.SEVERAL_PROCESSES,
        Trait.SEVERAL_NODES, Trait.DEEPSPEED, Trait.FSDP, Trait.ACCUMULATION, Trait.OWN_LOOP, Trait.OWN_COLLATOR,
        Trait.SCHEDULER, Trait.RATE, Trait.EVALUATION, Trait.PARSED_ANSWERS, Trait.CLASSIFICATION, Trait.SPLIT,
        Trait.TRUNCATION, Trait.LENGTH_LIMIT, Trait.PADDING, Trait.PADDING_SIDE, Trait.STOP_TOKEN,
        Trait.CHAT_TEMPLATE, Trait.ANSWER_MASK, Trait.GENERATION, Trait.CACHE, Trait.SERVER, Trait.CLIENT,
        Trait.CONTAINER, Trait.FRAMEWORK_SETTINGS, Trait.SAVING, Trait.LOADER, Trait.SHUFFLING, Trait.SEED,
        Trait.REENTRANT, Trait.LIGHTNING, Trait.SWIFT, Trait.TORCHTUNE, Trait.UNSLOTH, Trait.AXOLOTL,
        Trait.LLAMA_FACTORY, Trait.DEVICE_MAP, Trait.VLLM, Trait.OLLAMA, Trait.LLAMA_CPP,
    )
)  # fmt: skip
"""What sound projects have as well: a line that shows it supports no cause, unless it has a word of code of the cause.
Of 60 candidates that were drawn from outputs and read, half pointed at such a line, and most of these lines spoke
against their candidate"""

READING_OF_TRAIT = {reading.trait: reading for reading in TRAIT_READINGS}

TRAINS = re.compile(
    r"Trainer\(|TrainingArguments|SFTConfig|\.backward\(|llamafactory-cli train|axolotl|swift sft|tune run"
    r"|num_train_epochs|\bnum_epochs\s*:|finetuning_type|micro_batch_size|per_device_train_batch_size"
)
"""A line of what trains: only where there is one does the lack of DPO or packing say something"""
GENERATES = READING_OF_TRAIT[Trait.GENERATION].shown_by
SUBJECT_END = re.compile(r"[:;]| - |\. [A-Z]")


@cache
def traits_mentioned(text: str) -> frozenset[Trait]:
    """The traits that a text mentions."""
    return frozenset(reading.trait for reading in TRAIT_READINGS if reading.named_by.search(text))


OFF = r"""['"]?\s*[:=]\s*['"]?(?:0(?:\.0+)?|no|none|null|off|false|None|False|NO)\b(?!\.)['"]?"""
"""What a key is set to where its thing is not wanted"""
SWITCHES = {
    Trait.EVALUATION: r"val_set_size|val_size|eval_strategy|evaluation_strategy|do_eval",
    Trait.KEPT_BEST: r"load_best_model_at_end",
    Trait.PACKING: r"(?:sample_|neat_|eval_)?packing|packed",
    Trait.REENTRANT: r"use_reentrant",
    Trait.RESUME: r"resume_from_checkpoint|auto_resume\w*",
    Trait.GRADIENT_CHECKPOINTING: r"gradient_checkpointing",
    Trait.OFFLOAD: r"\w*offload\w*",
    Trait.COMPILED: r"torch_compile",
}
"""The keys that switch a trait on and off"""


QUOTES = "'\""
CODE_WORD = re.compile(
    r"(?:[A-Za-z]\w*[._])+\w+(?:=[\w'\"]+)?|\b[a-z]+[A-Z]\w+|--[a-z][\w-]+|\b[A-Z]\w+[A-Z]\w*\("
)
"""A name of code in a text: `use_cache`, `device_map='auto'`, `--enforce-eager`"""
NEGATED = re.compile(
    r"\b(?:without|no|not|never|has none|lacks)\b(?:[^.,:;()]|\.(?=\w)){0,60}", re.IGNORECASE
)
"""What a text says is not there"""


@cache
def patterns_of_wrong_and_missing_names(
    text: str,
) -> tuple[tuple[re.Pattern[str], ...], tuple[re.Pattern[str], ...]]:
    """(patterns of names of code that a text calls wrong, of those that it calls missing).

    A value beside a name belongs to it: a line with another value does not show it.
    """
    end = SUBJECT_END.search(text)
    subject = text[: end.start()] if end else text
    # Of what is missing the explanation tells as well: `no torch.cuda.set_device`.
    missing = [word for part in NEGATED.findall(text) for word in CODE_WORD.findall(part)]
    there = [word for word in CODE_WORD.findall(subject) if word not in missing]
    return tuple(map(_pattern_of_code_word, there)), tuple(map(_pattern_of_code_word, missing))


def _pattern_of_code_word(word: str) -> re.Pattern[str]:
    """The pattern of a name of code, with the value beside it."""
    name, _, value = word.partition("=")
    ending = rf"\W{{1,5}}{re.escape(value.strip(QUOTES))}" if value else ""
    return re.compile(rf"{re.escape(name)}(?!\w){ending}")


@cache
def traits_mentioned_as_missing(text: str) -> frozenset[Trait]:
    """The traits that a text mentions as missing only: `evaluated without the chat template`."""
    return traits_mentioned(" ; ".join(NEGATED.findall(text))) - traits_mentioned(
        NEGATED.sub(" ", text)
    )


@dataclass(frozen=True, slots=True)
class Precondition:
    """What a project has to have for a cause to be possible in it."""

    traits: frozenset[Trait]
    any_is_enough: bool
    """One of the traits is enough: the text says `or`"""

    def missing_traits_that_exclude_cause(
        self, present: frozenset[Trait], unknown: frozenset[Trait]
    ) -> frozenset[Trait]:
        """The traits whose lack excludes the cause; none while it is possible."""
        absent = self.traits - present - unknown
        if self.any_is_enough and absent != self.traits:
            return frozenset()
        return absent


@cache
def precondition_of_cause(text: str) -> Precondition:
    """What takes part in the thing that a text calls wrong: named before its explanation or fix."""
    end = SUBJECT_END.search(text)
    subject = text[: end.start()] if end else text
    needed = (trait for trait in traits_mentioned(subject) if READING_OF_TRAIT[trait].is_needed)
    return Precondition(frozenset(needed), " or " in subject or ", or" in subject)


def traits_shown_by_line(line: str) -> Iterator[Trait]:
    """The traits that a line of a project's files shows."""
    off = frozenset(traits_switched_off_by_line(line))
    for reading in TRAIT_READINGS:
        if reading.trait not in off and reading.shown_by.search(line):
            yield reading.trait


def traits_switched_off_by_line(line: str) -> Iterator[Trait]:
    """The traits that a line sets to nothing: `val_set_size: 0.0`, `packing=False`."""
    for trait, keys in SWITCHES.items():
        if re.search(rf"\b(?:{keys}){OFF}", line):
            yield trait
