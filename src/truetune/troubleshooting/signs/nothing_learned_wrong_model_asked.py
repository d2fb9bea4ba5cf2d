"""Signs of a base, an older model or another prompt that is asked instead of what was trained."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign_as_statement_patterns import GIVEN, Sign

HUB_NAME = (
    r"['\"]?[A-Za-z][\w-]+/[\w.-]*(?:\d[BbMm]\b|[Ii]nstruct|[Bb]ase|-it\b|[Cc]hat|Llama|Qwen|Mistral"
    r"|[Gg]emma|[Pp]hi|SmolLM|gpt|t5|opt-|pythia)[\w.-]*"
)
"""A published model, as the hub has it: `Qwen/Qwen2.5-7B-Instruct`"""
ASKS = r"\.generate\(|\bpipeline\(|\bLLM\(|\.chat\(|completions\.create|evaluate\(|\.predict\("
TUNED_ASKED = (
    r"\bPeft|\bpeft\b|load_adapter|lora_request|LoRARequest|enable_lora|--lora|merge_and_unload"
    r"|\.train\(\)|\.fit\(|\.backward\(|load_state_dict"
    r"|Trainer\(|lora_modules|get_peft_model"
)
BASE_LOADED = (
    r"(?:\w(?<!Tokenizer)(?<!Processor)(?<!Config)\.from_pretrained|\bpipeline|\bLLM)\((?:\s*['\"][\w-]+['\"]\s*,)?\s*(?:(?:model|model_id"
    rf"|pretrained_model_name_or_path)\s*=\s*)?{HUB_NAME}"
)
BASE_NAMED = (
    rf"^(?i:\w*(?:base|model|ckpt|checkpoint)\w*)\s*(?::\s*str\s*)?=\s*{HUB_NAME}"
    rf"|add_argument\(\s*['\"]--(?:model|base|ckpt)\w*['\"].{{0,60}}default\s*=\s*{HUB_NAME}"
)
FRESH_ADAPTER = r"\bget_peft_model\("
SERVER = (
    r"(?:vllm serve|vllm\.entrypoints\S*|llama-server|llama-cli|ollama (?:serve|run)"
    r"|text-generation-launcher|sglang\.launch_server|lmdeploy serve|llamafactory-cli api|tgi)"
)
SERVES_BASE = rf"{SERVER}(?!.*(?:lora|adapter|merged|tuned|finetuned|\./|/(?:out|ckpt|runs|models)/)).*{HUB_NAME}"
HARNESS = (
    r"(?:\blm[_-]eval\b|\blm_eval\.|\bsimple_evaluate\(|\blighteval\b|\bevalplus\b|\bopencompass\b"
    r"|\bevalchemy\b|\bhelm-run\b)"
)
SERVED_ADAPTER = (
    r"--lora-modules|--enable-lora|enable_lora|LoRARequest|lora_modules|--lora-paths|--lora\b"
)
CLIENT_MODEL = (
    r"(?:create\(|['\"]messages['\"]|chat/completions|\bpost\("
    rf"|\bcurl\b).*\bmodel['\"\\]{{0,3}}\s*[:=]\s*\\?{HUB_NAME}|^\W*model['\"]\s*:\s*{HUB_NAME}"
    rf"|^(?i:\w*model\w*)\s*=\s*{HUB_NAME}"
)
ALPACA_TEXT = (
    r"### ?(?:Instruction|Response|Input|Question|Answer|Human|Assistant|Anweisung|Antwort)\b"
    r"|\[INST\]|<\|user\|>|\b(?:USER|ASSISTANT): "
)
CHAT_FORM = (
    r"apply_chat_template\(|chat\.completions|chat/completions|/api/chat|\.chat\(|['\"]messages['\"]"
    r"|chat_template\b|^\s*template:\s*\w"
)
PLAIN_ASKED = (
    r"\bclient\.completions\.create|/v1/completions\b|/api/generate\b|\bllm\.generate\("
    r"|\bpipe\w*\(\s*\w*(?:prompt|question|text)\w*|\btok\w*\(\s*(?:prompt|question|text|q|query"
    r"|f['\"])\w*"
)
NO_SYSTEM = r"\[\s*\{\s*['\"]role['\"]\s*:\s*['\"]user['\"]"
SYSTEM = r"['\"]role['\"]\s*:\s*['\"]system['\"]|^\s*(?:default_)?system\w*\s*[:=]|\bSYSTEM\w*\s*="
NAMES_BASE = (
    r"^the base is asked instead|^a script (?:asks|evaluates) the base|^it is the base model that answers"
    r"|^both sets of answers come"
)
KEPT_ANSWERS = (
    r"(?:exists|isfile|is_file)\([^)]{0,60}(?i:pred|answer|output|result|respon|generat|out_?(?:path"
    r"|file))|(?i:pred|answer|output|result|respon|generat|out_?(?:path|file))\w*\.(?:exists"
    r"|is_file)\("
)

ASKED_SIGNS: tuple[Sign, ...] = (
    # The base answers
    Sign(
        f"{NAMES_BASE}|^the evaluation names the base twice",
        r"\.disable_adapters?\(|\bunload\(\)",
        beside_in_file=ASKS,
        unless_in_file=r"DPO|ref_?model|\.backward\(|merge",
    ),
    Sign(
        rf"{NAMES_BASE}|^the evaluation names the base twice|^the adapter is loaded but changes nothing",
        FRESH_ADAPTER,
        beside_in_file=ASKS,
        unless_in_file=r"\.train\(\)|\.fit\(|\.backward\(|Trainer\(",
    ),
    Sign(
        rf"{NAMES_BASE}|^the evaluation names the base twice|^a project trains a model, and its commands",
        BASE_LOADED,
        beside_in_file=ASKS,
        unless_in_file=TUNED_ASKED,
    ),
    Sign(
        rf"{NAMES_BASE}|^the evaluation names the base twice|^a project trains a model, and its commands",
        BASE_NAMED,
        beside_in_file=ASKS,
        unless_in_file=TUNED_ASKED,
    ),
    Sign(
        r"^the base is asked instead|^it is the base model that answers",
        r"^FROM\s+\S",
        beside_in_file=r"^(?:TEMPLATE|PARAMETER|SYSTEM|FROM\s+\S+:\S+|FROM\s+\S*gguf)",
        unless_in_file=r"^ADAPTER\b|^(?:RUN|COPY|ENTRYPOINT|CMD)\b",
    ),
    Sign(
        r"^the base is asked instead|^a project trains a model, but|^it is the base model that answers",
        SERVES_BASE,
        unless=SERVED_ADAPTER,
    ),
    Sign(
        r"^the base is asked instead|^the evaluation names the base twice"
        r"|^both sets of answers come from one model|^two models give the same answers",
        r"\b\w*(?:llm|LLM|engine)\w*\.(?:generate|chat)\((?!.*lora_request).*",
        beside_in_file=r"enable_lora|LoRARequest\(",
    ),
    Sign(
        r"^the base is asked instead|^two models give the same answers",
        r"^(?!.*(?:[Tt]okeni[sz]er|Processor|tok\b)).*(?:For[A-Z]\w+"
        r"|AutoModel)\.from_pretrained\(\s*(?:\w+\.)?(?:base\w*|BASE\w*|model_name\w*|MODEL_NAME|model_id"
        r"|MODEL_ID)\b",
        beside_in_file=ASKS,
        unless_in_file=TUNED_ASKED,
    ),
    Sign(
        r"^a client asks a server for the base|^requests name the base model",
        CLIENT_MODEL,
        beside=SERVED_ADAPTER,
    ),
    Sign(
        r"^the evaluation names the base twice|^a project trains a model, but",
        rf"{HARNESS}(?!.*\b(?:peft|lora_local_path|adapter\w*)['\"]?\s*[=:]).*(?:pretrained"
        r"|model)\w*['\"]?\s*[=:]?\s*\S+",
    ),
    Sign(
        r"^checkpoints are asked with one cache",
        r"--use_cache\b(?! [Ff]alse)|\buse_cache\s*=\s*['\"]|--cache_requests|CachingLM|\bdiskcache\b"
        r"|joblib\.Memory|set_llm_cache|\blru_cache\b|response_cache|Cached requests",
    ),
    Sign(
        r"^answers are read from a cache file|^checkpoints are asked with one cache"
        r"|^two models give the same answers",
        KEPT_ANSWERS,
    ),
    Sign(r"^two models give the same answers", BASE_LOADED, beside_in_file=ASKS),
    Sign(
        r"^a script has an option for the model to evaluate",
        r"\.from_pretrained\(\s*['\"]|\b(?:LLM|pipeline)\(.{0,60}['\"][\w.-]+/",
        beside_in_file=(
            r"add_argument\(\s*['\"]-{1,2}(?:model|ckpt|checkpoint|adapter|lora)\w*|sys\.argv|typer"
            r"|click\.option"
        ),
        unless_in_file=r"from_pretrained\(\s*(?:\w+\.)?(?:args|a|opt|cfg|model|ckpt|checkpoint|adapter)\b",
    ),
    Sign(
        r"^an older checkpoint is asked",
        r"\bsorted\((?!.*key\s*=).{0,120}(?:glob|listdir|iterdir)\(.*\)\s*\[\s*-1\s*\]|(?:glob"
        r"|listdir)\([^)]{0,80}\)\s*\[\s*-?\d\s*\]|\bls\b[^|;]{0,60}checkpoint[^"
        r"|;]{0,40}\|\s*(?:sort\b(?! -V)[^|;]{0,20}\|\s*)?(?:head|tail)\b"
        r"|\bmax\(\s*(?:glob\.)?glob\((?!.*key\s*=)",
    ),
    Sign(
        r"^an older checkpoint is asked|^a command evaluates the output",
        r"(?:\.from_pretrained\(|--\w*(?:model|adapter|ckpt|checkpoint|peft)\w*[ =]|ADAPTER\s"
        rf"|adapter\w*{GIVEN}|model\w*{GIVEN}|peft=)[^\s,]{{0,80}}\b(?:checkpoint|step|epoch)[-_]?\d+",
    ),
    Sign(
        r"^a command evaluates the output",
        r"(?i:(?:eval|test|predict|infer|score)\w{0,20}\.(?:py|sh)\b).{0,120}--\w*(?:model|adapter|ckpt"
        r"|checkpoint|peft|lora)\w*[ =][\w./-]+/",
    ),
    # The server
    Sign(
        r"^a vLLM server is given adapters",
        r"--lora-modules|LoRARequest\(|lora_request\s*=",
        unless=r"--enable-lora|enable_lora",
    ),
    Sign(r"^a vLLM server runs with random", rf"\bload[-_]format{GIVEN}dummy"),
    Sign(
        r"^a trained adapter is prepared",
        rf"{SERVER}(?!.*(?:--lora|adapter|merged)).*",
        beside=(
            r"convert_lora_to_gguf|adapter_model|save_pretrained\(['\"][\w./-]*(?:lora|adapter)"
            r"|lora[\w./-]*/|-lora\b"
        ),
    ),
    Sign(r"^a server loads an adapter on another", rf"{SERVER}.*(?:--lora|adapter)"),
    Sign(
        r"^the server applies the adapter with another scaling",
        r"--lora-scaled|\blora_scale|\bset_scale\(|scale_layer\(|adapter_weights|set_adapters\("
        r"|cross_attention_kwargs|\.scaling\[",
    ),
    Sign(
        r"^the server's log-probabilities are neither",
        r"--quantization\b|--kv-cache-dtype (?!auto)|--dtype (?:half|float16)|\bquantization\s*=\s*['\"]",
    ),
    Sign(
        r"^a pipeline merges or quantizes a model",
        r"(?:convert_hf_to_gguf\.py|convert\.py|llama-quantize|autoawq|auto_gptq|gptqmodel"
        r"|mlx_lm\.convert|ct2-transformers-converter|optimum-cli export)(?!.{0,80}merged).*",
        beside=r"(?i:merge|export)",
    ),
    Sign(
        r"^the container has older weights",
        r"^COPY\s.*(?i:model|weight|ckpt|checkpoint|merged|adapter|lora|gguf)"
        r"|\brevision['\"]?\s*[=:]\s*['\"](?!main\b)\w|--revision\b|(?:HF_HUB"
        r"|TRANSFORMERS)_OFFLINE['\"]?\s*[=:]?\s*['\"]?1|local_files_only\s*=\s*True",
        unless_in_file=r"\btorchrun\b|accelerate launch|#SBATCH|\btrain\w*\.py|\bsft\b",
    ),
    Sign(
        r"^the container has older weights",
        r"^-?\s*image:\s*(?!vllm/|ghcr\.io/|nvcr\.io/|nvidia/|ollama/|redis|postgres|nginx)\S+"
        r"|docker(?:-| )compose up(?!.*--build)|docker run\b(?!.*(?:vllm/|ollama/|ghcr\.io/huggingface"
        r"|nvcr\.io)).*",
        unless=r"docker build|--build\b|--pull",
    ),
    Sign(
        r"^the server of before still holds the port",
        r"(?i:address already in use|errno 98|only one usage of each socket)",
    ),
    Sign(
        r"^the server of before still holds the port",
        rf"(?:nohup|setsid|tmux|screen)\b.{{0,60}}{SERVER}|{SERVER}.*&\s*$|Popen\(.{{0,80}}{SERVER}",
        unless=r"(?:^|\s)(?:kill|pkill|fuser|killall)\b|\.terminate\(",
    ),
    # The prompt is another one
    Sign(
        r"^the script that asks writes in another form|^the prompt in serving is not",
        ALPACA_TEXT,
        beside=CHAT_FORM,
    ),
    Sign(
        r"^the script that asks writes in another form|^the prompt in serving is not",
        PLAIN_ASKED,
        beside=r"['\"]messages['\"]|type:\s*chat_template|^\s*template:\s*\w|\"conversations\"",
        unless_in_file=r"apply_chat_template|\.train\(\)|Trainer\(",
    ),
    Sign(
        r"^the script that asks writes in another form|^the prompt in serving is not",
        r"^TEMPLATE\b",
    ),
    Sign(
        r"^the rows carry a system prompt",
        NO_SYSTEM,
        beside=SYSTEM,
        unless_in_file=rf"{SYSTEM}|SFT|Trainer\(",
    ),
    Sign(
        r"^the rows carry a system prompt",
        r"['\"]role['\"]\s*:\s*['\"]system['\"]",
        beside=r"completions\.create|/api/(?:chat|generate)|\bollama\b|vllm serve|llama-server|\.generate\(",
        unless=r"GRPO|DPO",
        unless_in_file=ASKS,
    ),
)
