"""Known messages of trainers about their arguments and settings."""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "local-rank-as-an-argument",
        "the launcher gives each process --local-rank, which the script's parser does not know",
        r"unrecognized arguments:.{0,200}--local[-_]rank",
        "torch.distributed.launch passes --local-rank (with a dash since torch 2.0, --local_rank before) to the"
        " script; torchrun passes nothing and sets LOCAL_RANK",
        "start it with `torchrun --nproc-per-node N SCRIPT` and read int(os.environ['LOCAL_RANK']); or take both"
        ' spellings: add_argument("--local-rank", "--local_rank", type=int, default=0)',
        "torch/distributed/launch.py",
        "huggingface/pytorch-image-models#1724",
    ),
    define_message(
        "argument-removed",
        "the installed release does not know this argument",
        r"got an unexpected keyword argument|got multiple values for (?:keyword )?argument"
        r"|unrecognized arguments:|Some specified arguments are not used by the HfArgumentParser"
        r"|Some keys are not used by the HfArgumentParser",
        "the script was written for another release: tokenizer -> processing_class, max_seq_length"
        " -> max_length, evaluation_strategy -> eval_strategy, dataset_text_field and packing moved"
        " to SFTConfig",
        "`truetune lint SCRIPT` (or `truetune check SETTINGS`) names the new spelling for the"
        " release that is pinned; `truetune doctor` lists what is installed",
        "huggingface/trl#6168",
        "huggingface/transformers#7974",
    ),
    define_message(
        "name-removed",
        "the installed release has no such class or function",
        r"cannot import name '\w+' from '(?:trl|peft|accelerate|transformers|datasets|unsloth|torch"
        r"|huggingface_hub)|module '(?:torch|transformers|trl|peft|accelerate|datasets|bitsandbytes"
        r"|numpy)[\w.]*' has no attribute",
        "the script was written for another release (DataCollatorForCompletionOnlyLM, ORPOTrainer,"
        " AdamW of transformers), or packages of different ages are installed together",
        "`truetune lint SCRIPT` names what took its place; `truetune doctor` lists versions that do"
        " not fit",
        "huggingface/trl#3827",
        "huggingface/transformers#36954",
    ),
    define_message(
        "use-cache-with-checkpointing",
        "the cache is turned off because of gradient checkpointing",
        r"`?use_cache=True`? is incompatible with gradient checkpointing"
        r"|Caching is incompatible with gradient checkpointing",
        "harmless in training: use_cache is for generation; beside a generate() it says that the model is still"
        " in training mode with checkpointing on, so that generation is slow: each token runs the whole text again",
        "before generate(): model.eval() and model.gradient_checkpointing_disable(), with use_cache=True; in"
        " training alone: model.config.use_cache = False",
        "transformers/modeling_layers.py",
        shown="notice",
        severity="info",
    ),
    define_message(
        "deepspeed-values-mismatch",
        "the DeepSpeed file and the training arguments say different things",
        r"Please correct the following DeepSpeed config values|DeepSpeedConfigError"
        r"|Check batch related parameters|train_batch_size is not equal to micro_batch_per_gpu"
        r"|AssertionError: (?:Check batch|train_batch_size)|zero_optimization.{0,80}(?:not"
        r" supported|invalid)",
        "numbers in the JSON beside other numbers in the arguments; or one of three batch sizes"
        " that does not fit the number of processes",
        'set those values to "auto" in the JSON; `truetune check FOLDER` compares it with the'
        " command that starts the run",
        "transformers/integrations/deepspeed.py",
        "accelerate/utils/dataclasses.py",
    ),
    define_message(
        "deepspeed-not-usable",
        "DeepSpeed can't build or load one of its parts",
        r"Error building extension|Unable to JIT load the \w+ op|CUDA_HOME does not"
        r" exist|MissingCUDAException"
        r"|DeepSpeed(?:CPUAdam|FusedAdam).{0,80}(?:error|object has no attribute)|nvcc.{0,60}(?:not"
        r" found"
        r"|No such file)|Installed CUDA version .{1,20} does not match the version torch was"
        r" compiled with",
        "no CUDA toolkit (nvcc), or one of another version than torch's",
        "`truetune doctor` lists both versions; install a toolkit of torch's version, or set"
        " DS_SKIP_CUDA_CHECK=1 where only the minor version differs; optimizers of torch"
        " (adamw_torch) need none",
        "deepspeed/ops/op_builder/builder.py",
    ),
    define_message(
        "evaluation-settings",
        "the settings of evaluation and saving do not fit together",
        r"requires an? (?:eval_dataset|evaluation dataset)|load_best_model_at_end requires"
        r"|evaluation requires an eval_dataset|You have set `?args\.eval_strategy"
        r"|The `?metric_for_best_model`?.{0,200}|KeyError: 'eval_\w+'",
        "an evaluation without rows; a metric that is not logged under this name; saving and"
        " evaluating at different steps",
        "give eval_dataset, or eval_strategy='no'; metric_for_best_model as the log names it"
        " (eval_loss); `truetune check SETTINGS`",
        "transformers/training_args.py",
        "transformers/trainer.py",
    ),
    define_message(
        "precision-not-supported",
        "this machine does not support the precision that was asked for",
        r"Your setup doesn't support bf16|bf16/gpu|(?:fp|bf)16 mixed precision requires|BFloat16 is"
        r" not supported"
        r"|bf16 is not supported|Bfloat16 is only supported|--tf32 requires"
        r"|FP16 Mixed precision training with AMP",
        "a GPU older than Ampere (T4, V100, P100), or no GPU that torch sees",
        "`truetune doctor` names the GPU and what it supports; T4 and V100: fp16=True, bf16=False;"
        " without a GPU: use_cpu=True",
        "transformers/training_args.py",
        "accelerate/accelerator.py",
    ),
    define_message(
        "generation-settings-invalid",
        "generation settings contradict one another, so that saving fails",
        r"(?:The generation config instance|GenerationConfig) is invalid"
        r"|generation_config.{0,60}(?:invalid|can(?:no|')t be saved)"
        r"|`temperature` \(=0\.0?\) has to be a strictly positive|`do_sample` is set to `False`",
        "temperature or top_p beside do_sample=False in generation_config.json",
        "model.generation_config.do_sample = True, or drop temperature and top_p; `truetune check"
        " MODEL` reads the file",
        "transformers/generation/configuration_utils.py",
    ),
    define_message(
        "logging-needs-a-login",
        "the tracker of the run asks for a login",
        r"wandb\.errors|api_key not configured|UsageError: api_key|wandb: ERROR|CommError",
        "report_to is 'all' (an old default) or 'wandb', and there is no key on this machine",
        "report_to='none', or WANDB_MODE=offline (`truetune diagnose` reads offline runs)",
        "docs.wandb.ai/models/ref/python",
    ),
    define_message(
        "resume-not-possible",
        "there is no checkpoint to resume from, or it does not fit",
        r"No valid checkpoint found in output directory|Can't find a valid checkpoint at"
        r"|loaded state dict (?:contains a parameter group|has a different number)|Weights only"
        r" load failed"
        r"|WeightsUnpickler error|upgrade torch to at least v2\.6",
        "an empty folder, a checkpoint that was being written when the job ended, other trainable"
        " parameters than then, or a torch that refuses old pickles",
        "`truetune check CHECKPOINT` says what is whole; name it with"
        " resume_from_checkpoint='.../checkpoint-N'",
        "transformers/trainer.py",
        "torch/serialization.py",
    ),
    define_message(
        "resumed-run-was-over",
        "the run made no step: it was over within a second, with a loss of 0",
        r"\{.{0,40}'train_runtime': '?0\.\d{1,9}'?,.{0,300}'train_loss': '?0(?:\.0{1,4})?'?[,}]",
        "the checkpoint that it resumed from is at the last planned step (num_train_epochs x rows /"
        " batch, or max_steps): all steps are done, and new rows are never seen",
        "for new rows, leave resume_from_checkpoint out and begin from the trained weights with an"
        " output folder of its own; to train on, raise num_train_epochs or max_steps",
        "transformers/trainer.py: _inner_training_loop",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "peft-saves-embedding",
        "peft saves the whole embedding with the adapter, for its rows are others than the base's",
        r"Setting `save_embedding_layers` to `True`",
        "tokens were added, or the embedding was resized. What is saved need not be trained: the rows of new tokens"
        " are trained by trainable_token_indices or modules_to_save alone",
        "keep the tokenizer beside the adapter; `truetune check ADAPTER --base MODEL` proves that"
        " new tokens were trained and saved",
        "peft/utils/save_and_load.py",
        shown="notice",
        severity="info",
    ),
    define_message(
        "tied-weights-warned",
        "an adapter trains one of two tied weights",
        r"Model with `tie_word_embeddings=True` and the tied_target_modules",
        "embed_tokens or lm_head is a LoRA target of a model that ties them: merging changes both",
        "leave both out of target_modules, or untie them; `truetune check ADAPTER --base MODEL`",
        "peft/tuners/tuners_utils.py",
        shown="notice",
        severity="warning",
    ),
)
"""By how special they are"""
