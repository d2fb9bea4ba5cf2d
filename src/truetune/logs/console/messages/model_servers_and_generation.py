"""Known messages of programs that answer requests (vLLM), and about generation."""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "vllm-context-larger-than-cache",
        "vLLM's key-value cache is too small for one request of the full length",
        r"max seq len \(\d+\) is larger than the maximum number of tokens that can be stored"
        r"|To serve at least one request with the models?'?s? max seq len",
        "--max-model-len is the model's whole context by default (128,000 tokens), and the cache has"
        " what the weights leave free",
        "lower --max-model-len to what requests need, raise --gpu-memory-utilization (0.9 by"
        " default), or take --kv-cache-dtype fp8 or more GPUs (--tensor-parallel-size)",
        "vllm-project/vllm#2418",
        "vllm-project/vllm#16118",
    ),
    define_message(
        "vllm-cache-below-one-request",
        "vLLM's cache holds less than one request of the full length: requests wait or are"
        " interrupted",
        r"Maximum concurrency for [\d,]+ tokens per request: 0\.\d+x",
        "the weights leave little memory for the key-value cache: --gpu-memory-utilization is low,"
        " --max-model-len high, or another process holds a part of the GPU",
        "raise --gpu-memory-utilization to 0.9, lower --max-model-len to what requests need",
        "vllm/v1/core/kv_cache_utils.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "vllm-lora-rank",
        "the adapter's rank is higher than what the server was started for",
        r"LoRA rank \d+ is greater than max_lora_rank",
        "--max-lora-rank is 16 by default",
        "start with --max-lora-rank 64 (the r of adapter_config.json); or merge it: `truetune merge"
        " ADAPTER -o MERGED`",
        "vllm/lora/peft_helper.py",
    ),
    define_message(
        "prompt-cut-by-ollama",
        "Ollama cuts prompts that are longer than its context: the beginning of the text is lost, with the"
        " documents in it",
        r"time=\S+ level=WARN .{0,120}msg=\"truncating input prompt\" limit=\d+ prompt=\d+",
        "num_ctx is not set, and Ollama's default is 4,096 tokens (2,048 before 0.6), or it is below the prompt"
        " that the line counts",
        "set num_ctx above the longest prompt and its answer: `PARAMETER num_ctx 16384` in the Modelfile, options"
        " num_ctx in the request, or OLLAMA_CONTEXT_LENGTH of the server; or send fewer documents",
        "ollama/runner/ollamarunner/runner.go",
        "ollama/ollama#10368",
        "ollama/ollama#17427",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "request-longer-than-context",
        "a request is longer than the server's context",
        r"maximum context length is \d+ tokens. However, you requested",
        "prompt and max_tokens together exceed --max-model-len",
        "lower max_tokens or shorten the prompt; `truetune check DATA -t TOKENIZER -v` prints the"
        " lengths",
        "vllm/entrypoints/openai/serving_engine.py",
    ),
    define_message(
        "engine-died",
        "the serving engine ended; its own exception is above",
        r"Engine core initialization failed|EngineDeadError|AsyncEngineDeadError"
        r"|Background loop has errored|EngineCore encountered (?:an issue|a fatal error)",
        "out of memory, a kernel that fails, or a model that it does not know: the first exception of"
        " EngineCore says which",
        "read the first exception above; with none: VLLM_LOGGING_LEVEL=DEBUG and --enforce-eager once",
        "vllm/v1/engine/core.py",
        is_consequence=True,
    ),
    define_message(
        "generation-length",
        "max_length counts the prompt too, and the prompt is as long already",
        r"Input length of (?:input_ids|decoder_input_ids|inputs_embeds) is \d+, but `max_length` is"
        r" set to",
        "max_length is 20 by default and includes the prompt",
        "give max_new_tokens instead of max_length",
        "transformers/generation/utils.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "generation-length-raised",
        "max_length counts the prompt too, and the prompt is as long already",
        r"Input length of (?:input_ids|decoder_input_ids|inputs_embeds) is \d+, but `max_length` is"
        r" set to",
        "max_length is 20 by default and includes the prompt",
        "give max_new_tokens instead of max_length",
        "transformers/generation/utils.py",
    ),
    define_message(
        "generation-beyond-positions",
        "the text grows beyond the positions that the model was trained for",
        r"This is a friendly reminder - the current text generation call (?:will|has) exceed",
        "prompt and new tokens together are more than max_position_embeddings: what comes after it is"
        " often garbage",
        "lower max_new_tokens, or shorten the prompts (`truetune check DATA -t TOKENIZER -v` prints"
        " the lengths)",
        "transformers/generation/stopping_criteria.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "arguments-of-generate-not-used",
        "generate() is given inputs that the model does not know",
        r"`model_kwargs` are not used by the model",
        "token_type_ids of a tokenizer of another family, or a setting of generate() that is spelled"
        " wrongly",
        "inputs.pop('token_type_ids'), or tokenizer(..., return_token_type_ids=False); compare names"
        " with GenerationConfig",
        "transformers/generation/utils.py",
    ),
    define_message(
        "flash-attention-padded-right",
        "flash attention refuses a batch that is padded on the right",
        r"batched generation with padding_side='right'",
        "the tokenizer pads on the right, and an answer would begin after padding",
        "tokenizer.padding_side = 'left' before generate(); `truetune lint SCRIPT` finds it",
        "transformers/models/qwen2/modeling_qwen2.py",
    ),
    define_message(
        "code-of-the-model-too-old",
        "the model's own code (trust_remote_code) was written for an older transformers",
        r"'DynamicCache' object has no attribute|'DynamicCache' object is not subscriptable"
        r"|'\w+Cache' object has no attribute '(?:get_max_length|seen_tokens|get_usable_length)'",
        "files of the hub's folder call methods of the cache that transformers has removed",
        "load without trust_remote_code where transformers knows the architecture itself; else pin the"
        " transformers that the model card names (`truetune doctor` lists versions)",
        "hiyouga/LlamaFactory#7597",
        "deepseek-ai/DeepSeek-Coder-V2#81",
    ),
)
"""By how special they are"""
