"""Known messages of training stacks about rows, templates and devices: TRL, PEFT, Unsloth,
LLaMA-Factory, Axolotl, accelerate.
"""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "batch-not-a-multiple-of-generations",
        "GRPO's batch can't be divided into whole groups of answers",
        r"must be (?:evenly )?divisible by (?:the number of generations per prompt|num_generations)",
        "per_device_train_batch_size counts answers, not prompts: processes x batch x accumulation"
        " must be a multiple of num_generations (8 by default), and num_generations at least 2",
        "set per_device_train_batch_size to num_generations, or num_generations to a number that the"
        " message lists; `truetune check SETTINGS` reads both",
        "huggingface/trl#3061",
        "huggingface/open-r1#249",
    ),
    define_message(
        "kto-batch-of-one",
        "KTO needs more than one row at a time: its KL term compares rows of a batch",
        r"Actual \(not effective\) batch size must be > 1",
        "per_device_train_batch_size is 1; accumulation does not count",
        "per_device_train_batch_size of at least 2, better 4 or more",
        "trl/trainer/kto_trainer.py",
    ),
    define_message(
        "packed-without-flash-attention",
        "rows that are packed or unpadded see one another: the attention is not a flash one",
        r"(?:Padding-free training is enabled|You are using packing), but the attention implementation"
        r" is not set",
        "without flash attention the borders of packed rows are ignored, so tokens attend to other"
        " rows",
        'attn_implementation="flash_attention_2" (or a kernels-community one), or packing=False and'
        " padding_free=False; `truetune check SETTINGS` finds it",
        "trl/trainer/sft_trainer.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "gemma-without-eager-attention",
        "a Gemma model is trained with another attention than `eager`",
        r"It is strongly recommended to train Gemma\d? models with the `eager` attention implementation",
        "Gemma 2 caps its attention scores (soft-capping), and sdpa, or a flash-attn before 2.6, leaves that out: the"
        " loss is higher than it should be, and less stable (Gemma 3 has no soft-capping: there it is a precaution)",
        'load the model with attn_implementation="eager", or with flash_attention_2 from flash-attn 2.6 on',
        "transformers/models/gemma2/modeling_gemma2.py",
        "huggingface/transformers#32848",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "prompt-tokens-merge",
        "a prompt is tokenized otherwise alone than in front of its answer",
        r"Mismatch between tokenized prompt and the start of tokenized prompt\+",
        "a token spans the border of prompt and answer (a space or line break at the end of the"
        " prompt), or the template puts more after the prompt: the mask is off by some tokens",
        "see the border with `truetune show DATA -t TOKENIZER`; end prompts without a space, and"
        " let the answer begin with it",
        "trl/trainer/sft_trainer.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "batches-skipped-by-ratio",
        "PPO skips batches whose ratio of new to old policy is too large",
        r"The average ratio of batch \([^)]{1,20}\) exceeds threshold",
        "the policy changes so much in one batch that its answers are no samples of it any more; skipped batches"
        " teach nothing",
        "lower the learning rate or the number of updates for each batch of answers (ppo_epochs), and see that"
        " generate() samples from the whole distribution (top_k=0, top_p=1.0)",
        "trl/trainer/ppo_trainer.py (0.11)",
        "huggingface/trl#1857",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "several-adapters",
        "a model that has an adapter gets another one",
        r"Already found a `peft_config` attribute in the model",
        "get_peft_model() on a PeftModel, or peft_config given to a trainer whose model has an adapter"
        " already: the first is frozen or left out when it is saved",
        "give the trainer the plain model with peft_config, or the PeftModel without; `truetune lint"
        " SCRIPT` finds it",
        "peft/tuners/tuners_utils.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "checkpointing-not-supported",
        "this model has no gradient checkpointing",
        r"does not support gradient checkpointing",
        "its class has no support for it (a model's own code, or an old transformers)",
        "gradient_checkpointing=False, with fewer or shorter rows (`truetune plan SETTINGS --gpu"
        " {gpu}`), or a newer transformers",
        "transformers/modeling_utils.py",
    ),
    define_message(
        "shared-weights-not-saved",
        "weights that share memory can't be saved as safetensors",
        r"[Ss]ome tensors share memory",
        "the head and the embedding are one tensor, and the config does not say so (tied weights"
        " after a resize, torch.save habits)",
        "model.config.tie_word_embeddings as it is in the model, then save_pretrained;"
        " save_model() of safetensors.torch; `truetune check CHECKPOINT` names what is missing",
        "huggingface/safetensors/bindings/python/py_src/safetensors/torch.py",
    ),
    define_message(
        "no-adapter-to-merge",
        "the model has no adapter: it is the plain base",
        r"has no attribute '(?:merge_and_unload|merge_adapter|unload)'",
        "the adapter was never put on (AutoModel instead of PeftModel), or was merged already",
        "PeftModel.from_pretrained(base, ADAPTER).merge_and_unload(), or `truetune merge ADAPTER -o"
        " MERGED`, which proves what is kept",
        "peft/tuners/lora/model.py",
    ),
    define_message(
        "unsloth-untrained-tokens",
        "the rows hold tokens that the base was never trained on, and the embedding is frozen",
        r"Untrained tokens .{0,120}found, but embed_tokens",
        "the template or the data use reserved tokens (<|reserved_special_token_N|>, <|eot_id|> of a"
        " base model): their embeddings are zero and give NaN",
        "the instruct model, or a template whose marks the base knows; else embed_tokens and lm_head"
        " among target_modules; `truetune check DATA -t TOKENIZER` names the tokens",
        "unslothai/unsloth#1056",
        "unslothai/unsloth#1258",
    ),
    define_message(
        "unsloth-several-gpus",
        "Unsloth is started on several GPUs without its support for them",
        r"Unsloth currently does not (?:support|work).{0,60}(?:multi[- ]GPU|multiple GPUs)"
        r"|Unsloth.{0,40}does not support multi GPU",
        "more than one GPU is visible to an Unsloth that uses one",
        "CUDA_VISIBLE_DEVICES=0, or a newer Unsloth started with torchrun or accelerate launch",
        "unslothai/unsloth#1072",
    ),
    define_message(
        "unsloth-no-memory-for-the-loss",
        "Unsloth finds no memory for the loss",
        r"No or negligible GPU memory available for fused cross entropy",
        "weights and activations fill the GPU, so that no chunk of the logits fits",
        "per_device_train_batch_size=1, a smaller max_seq_length, load_in_4bit=True; end what else"
        " runs on the GPU (`nvidia-smi`); `truetune plan SETTINGS --gpu {gpu}`",
        "unsloth_zoo/fused_losses/cross_entropy_loss.py",
    ),
    define_message(
        "unsloth-formatting-function",
        "Unsloth's trainer does not know how a row becomes text",
        r"Unsloth: You must specify a `formatting_func`",
        "the rows have neither a column of text nor one of messages that the trainer reads",
        "map the rows to a column `text` with the chat template (or to `messages`), or give"
        " formatting_func; `truetune check DATA -t TOKENIZER` says what the columns are",
        "unsloth/models/rl_replacements.py",
    ),
    define_message(
        "llamafactory-no-valid-rows",
        "LLaMA-Factory left out every row: none has a prompt and an answer",
        r"Cannot find valid samples, check",
        "columns or tags in dataset_info.json that are not those of the file, roles that do not"
        " alternate, `ranking: true` missing for pairs, or rows longer than cutoff_len in whole",
        "compare columns with `truetune check SETTINGS`, which reads dataset_info.json with its rows",
        "hiyouga/LlamaFactory#2577",
        "hiyouga/LlamaFactory#5737",
    ),
    define_message(
        "llamafactory-dataset-not-listed",
        "the data set is not in dataset_info.json",
        r"Undefined dataset .{1,160} in dataset_info\.json",
        "`dataset:` takes a name of dataset_info.json, no path; or dataset_dir is another folder, seen"
        " from where the command was started",
        "an entry with that name in dataset_info.json of dataset_dir; `truetune check SETTINGS` reads"
        " both",
        "hiyouga/LlamaFactory#7703",
        "hiyouga/LlamaFactory#5341",
    ),
    define_message(
        "llamafactory-needs-torchrun",
        "several GPUs or DeepSpeed need a process for each GPU",
        r"FORCE_TORCHRUN=1",
        "llamafactory-cli was started as one process",
        "FORCE_TORCHRUN=1 llamafactory-cli train SETTINGS; or CUDA_VISIBLE_DEVICES=0 for one GPU",
        "llamafactory/hparams/parser.py",
    ),
    define_message(
        "images-against-placeholders",
        "the text has more or fewer places for images than the row has images",
        r"number of (?:images|videos|audios) does not match the number of <?\w+>? tokens"
        r"|Image features and image tokens do not match|Mismatch in `?image`? token count",
        "a placeholder <image> is missing in the message, or truncation cut the image's tokens",
        "one <image> for each image of the row; a larger max_length (None for rows with images);"
        " `truetune check DATA -t TOKENIZER`",
        "llamafactory/data/mm_plugin.py",
        "transformers/models/llava/modeling_llava.py",
    ),
    define_message(
        "settings-not-valid",
        "a setting of the configuration file has a wrong name or value",
        r"validation errors? for (?:Axolotl\w*|\w*Config\w*)",
        "a misspelled or removed setting, a value of another type, or two settings that exclude each"
        " other; the lines below it name each",
        "`truetune check SETTINGS` names settings that the release does not know, with the nearest"
        " one",
        "axolotl/utils/schemas/config.py",
        "docs.pydantic.dev/latest/errors/validation_errors",
    ),
    define_message(
        "accelerator-state-reset",
        "accelerate's state is gone or was never made",
        r"`?AcceleratorState`? object has no attribute|initialize the accelerate state by calling"
        r"|Accelerator.{0,40}(?:already|not) (?:been )?initialized",
        "a second trainer or Accelerator in one process or notebook, or a logger of accelerate used"
        " before Accelerator()",
        "restart the notebook's kernel; one Accelerator for each process, made before its logger",
        "accelerate/state.py",
    ),
    define_message(
        "empty-loader",
        "a batch of the evaluation or training is empty",
        r"Batch does not contain any data",
        "fewer rows than processes, an empty split, or drop_last with a batch larger than the data",
        "count rows with `truetune check DATA -t TOKENIZER`; a split of at least processes x batch rows",
        "accelerate/data_loader.py",
    ),
    define_message(
        "stream-without-steps",
        "a stream has no length, so the trainer does not know when to end",
        r"does not implement __len__, max_steps has to be specified",
        "streaming=True (an IterableDataset) with num_train_epochs",
        "set max_steps = rows x epochs / (batch x accumulation x processes)",
        "transformers/trainer.py",
    ),
    define_message(
        "no-inputs-given",
        "the model was called without input ids",
        r"have to specify (?:either )?(?:exactly one of )?`?input_ids`? or `?inputs_embeds`?"
        r"|must specify exactly one of input_ids or inputs_embeds",
        "the collator or remove_unused_columns dropped input_ids, a prompt is empty, or the arguments"
        " went to another name",
        "print the keys of one batch; `truetune run -- CMD` shows what reaches the model",
        "transformers/models/llama/modeling_llama.py",
    ),
    define_message(
        "attention-kernel-missing",
        "no attention kernel fits this GPU, dtype or shape",
        r"cutlassF: no kernel found|No available kernel\.? *Aborting execution|CUBLAS_STATUS_NOT_SUPPORTED",
        "bfloat16 on a GPU before Ampere (T4, V100), a head size that the kernel lacks, or a torch"
        " without kernels for a new GPU",
        "dtype=torch.float16 on T4 and V100, or attn_implementation='eager' to prove it; `truetune"
        " doctor` names the GPU and torch's architectures",
        "aten/src/ATen/native/transformers/cuda/sdp_utils.cpp",
    ),
)
"""By how special they are"""
