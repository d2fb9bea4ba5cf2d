"""Fragments of patterns that signs of several symptoms share: how projects write things."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign_as_statement_patterns import SET

ON = rf"{SET}(?:[Tt]rue|yes|on|1)\b"
OFF = rf"{SET}(?:[Ff]alse|no|off|0)\b(?!\.)"
LOAD = r"\b(?:Model\w{0,30}|\w{0,30}For[A-Z]\w{1,30})\.from_pretrained\("
"""A model of transformers, not its tokenizer or settings"""
TRAINS = (
    r"Trainer\(|\.backward\(|training_step|finetuning_type|micro_batch_size"
    r"|per_device_train_batch_size"
)
OWN_LOOP = r"\.backward\("
GENERATES = r"\.generate\("
PADS = (
    rf"\b(?:padding|padding_strategy){SET}max_length|\bpad_to_(?:max_length"
    rf"|sequence_len){ON}|PaddingStrategy\.MAX_LENGTH"
)
"""Every row as long as the limit; `padding=True` pads to the longest of a batch"""
LENGTH = (
    r"\b(?:max_(?:seq_|prompt_|source_|input_|model_)?len(?:gth)?|sequence_len"
    r"|seq_len(?:gth)?|cutoff_len|block_size|context_length|max_tokens_per_row)"
)
BATCH = (
    r"\b(?:(?:per_device_)?(?:train_)?(?:micro_)?batch_?size(?:_per_gpu)?"
    r"|train_micro_batch_size_per_gpu|bsz?)"
)
EVAL_BATCH = r"\b(?:per_device_)?(?:eval|val|valid|validation|test|dev)_\w{0,20}batch_?size"
EAGER = rf"\battn\w*{SET}eager\b|eager_attention{ON}|flash_attn{SET}disabled"
SEVERAL_PROCESSES = (
    r"\btorchrun\b|init_process_group|DistributedDataParallel|accelerate launch"
    r"|torch\.distributed\.(?:run|launch)"
    r"|\bdeepspeed --|LOCAL_RANK"
)
ZERO3 = rf"\bstage['\"]?{SET}3\b|zero_?stage{SET}3\b|zero-?_?3|ds_z3|DEEPSPEED_ZERO3"
NO_DTYPE = rf"{LOAD}(?!.*(?:dtype|load_in_[48]bit|quantization_config|\*\*))"
SIXTEEN_BITS = (
    r"bfloat16|(?<!b)float16|\.half\(|load_in_[48]bit|autocast|dtype['\"]?\s*[=:]\s*['\"]auto"
)
KILLED = (
    r"(?:^|\s)Killed\b|exit(?:ed with)?(?: |_)?code:? ?(?:137|-9)\b|exitcode *: *-9"
    r"|[Ss]ignal 9\b|SIGKILL"
    r"|oom[-_ ]kill|OUT_OF_ME|OOMKilled"
)
MEMORY_ERROR = r"out of memory|OutOfMemory"
FULL_IMAGES = (
    rf"max_pixels{SET}\(?(?:[2-9]\d{{6}}|\d{{8,}})|max_pixels{SET}\d{{4,5}} ?\* ?28|do_resize{OFF}"
    rf"|MAX_PIXELS{SET}(?:[2-9]\d{{6}}|\d{{8,}})|image_resolution{SET}\d{{4,}}"
)
"""From 2 million pixels on: 2,600 tokens of Qwen2-VL, where its example for training takes 1,000"""
VISION = (
    r"\b[\w.-]*-VL\b|[Ll]lava|[Ii]defics|[Pp]ixtral|Vision2Seq|ImageTextToText"
    r"|[Pp]ali[Gg]emma|ConditionalGeneration.*\bVL|VLForCond"
)
LIMITS_IMAGES = (
    r"(?i:max_pixels|resize\(|thumbnail\(|longest_edge|image_resolution|size=\{|max_image)"
)
LORA = r"(?i:lora|peft|adapter)"
OLD_GPU = (
    r"\bTesla (?:T4|V100|P100|P40|K80)\b|\bT4\b|\bV100\b|\bP100\b|RTX 20\d0|GTX 1\d{3}"
    r"|TITAN|turing|volta|colab|kaggle"
)
SLOW_CARD = r"(?:SW (?:Power|Thermal)|HW)[ \w]{0,30}(?:Slowdown|Cap)\W{1,30}Active|[Tt]hrottl"
GPU_PROCESS = r"^\|\s{1,4}\d\s.{0,30}\s(?:C|C\+G|G)\s.{0,80}\d{4,6}MiB"
"""A row of nvidia-smi: a process that holds a gigabyte or more"""
