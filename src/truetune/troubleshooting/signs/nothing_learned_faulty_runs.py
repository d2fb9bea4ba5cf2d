"""Signs of runs that train too little, the wrong weights, or save other ones, where nothing is learned."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign_as_statement_patterns import GIVEN, Sign

YES = r"(?:[Tt]rue|1|yes)\b"
MODEL_LOADED = r"(?:Model\w*|For[A-Z]\w+)\.from_pretrained\("
OWN_LOOP = r"\.backward\("
TRAINS = r"\.train\(\)|\.fit\(|\.backward\(|Trainer\("
LORA = r"(?i:\blora|peft|adapter)"
TINY_RATE = r"(?:[1-9](?:\.\d+)?[eE]-0?[6-9]\b|0\.00000\d)"
"""Below 1e-5: weights of 0.02 are multiples of 6e-5 to 1.2e-4 in bfloat16, and a step of AdamW is the rate"""
RATE = rf"\b(?:learning_rate|lr|LEARNING_RATE|LR){GIVEN}"
RATE_OF_FULL_TRAINING = (
    rf"{RATE}(?:[1-9](?:\.\d{{1,2}})?[eE]-0?[6-9]\b|[12](?:\.0)?[eE]-0?5\b"
    r"|0\.00000\d|0\.0000[12]\b)"
)
"""At most 2e-5, usual for all weights: published adapters begin at 1e-4"""
OTHER_TRAINING = r"\b(?:DPO|GRPO|KTO|ORPO|PPO|RLOO|CPO)|\bstage:\s*(?:dpo|kto|ppo|rm)|^\s*rl:|finetuning_type:\s*full"
WRITTEN = (
    r"['\"](?:log_history|peft_type|architectures)['\"]|\bloss\b['\"]?\s{0,3}[=: ]\s{0,3}['\"]?\d"
)
"""In a file that a trainer wrote: its rates are those of single steps"""
FOR_EVALUATION = r"(?i:eval|val|test|dev|few|shot|demo|preview)"
TRIAL_LIMIT = (
    r"\b(?:max_train_samples|max_samples|limit_train_batches|overfit_batches|train_subset\w*"
    r"|num_train_samples|max_rows|n_rows"
    r"|num_samples|max_examples|sample_size|SUBSET\w*|N_ROWS|LIMIT|MAX_ROWS|MAX_SAMPLES"
    rf"|NUM_SAMPLES){GIVEN}(?!1\.0\b)[\d.]+"
    r"|(?i:\b(?:smoke_?(?:test|run)?|debug(?:_mode)?|dry_run|quick(?:_test|_run)?|fast_dev_run"
    rf"|dev_run|toy|trial|sanity)){GIVEN}(?:{YES}|[1-9]\d*\b)"
)
SLICE_OF_ROWS = (
    rf"^(?!.{{0,40}}{FOR_EVALUATION}).*(?:\.select\(\s*(?:list\()?range\(\s*\d"
    r"|split\s*=\s*['\"]\w+\[\s*:|\.take\(\s*\d|\.head\(\s*\d|\bnrows\s*="
    r"|(?i:rows|data\w*|ds|examples|samples|train\w*|lines|records)\w*\[\s*:\s*(?:\d{1,5}|[A-Z_]{3,})\s*\])"
)
RESUMED = (
    rf"\bresume(?:_from_checkpoint|_from|_training)?{GIVEN}(?!None|null|[Ff]alse|['\"]?\s*[,)]"
    rf"|no\b)[\w./'\"]|\bauto_resume{GIVEN}{YES}|\bckpt_path\s*=\s*(?!None)"
    r"|\bget_last_checkpoint\(|range\(\s*(?:\w+\.)?(?:start|first|begin|initial|resume|last|done"
    r"|epoch)\w*\s*(?:\+\s*1\s*)?,"
    r"|\bcontinuing from|(?i:\bresum(?:ed|ing) (?:training )?from)|Continuing training from checkpoint|\bload_state\("
)
LAYERS = (
    r"\blayers_to_transform['\"]?\s*[=:]\s*(?:\[|\w+\()|\bfreeze_layers|^(?!.*(?:mismatch|[Ww]arning"
    r"|Some weights)).*\blayers\.\d+\.|\.layers\[\s*-?\w*\d*\s*:|\.layers\[\s*\d+\s*\]"
    r"|\bunfrozen_parameters\b|lora_layers"
)

RUN_SIGNS: tuple[Sign, ...] = (
    Sign(
        r"^training compares the answers to",
        rf"\brollout\.n=1\b(?!\.)|\bnum_generations_per_prompt{GIVEN}1\b(?!\.)"
        r"|\brollout\.temperature=0(?:\.0)?(?![.\d])",
    ),
    Sign(r"^training saves no trained weights", rf"\bsave_freq{GIVEN}-1\b"),
    # How long it trains
    Sign(
        r"^the run (?:makes a few|has too few) optimizer steps",
        rf"\b(?i:max_steps|max_train_steps|total_steps|max_iters|max_steps_per_epoch){GIVEN}(?:\d{{1,2}}"
        r"|1\d\d|200)\b(?!\.)",
        unless=r"(?i:global_step\W+\d{4})",
    ),
    Sign(
        r"^the run (?:makes a few|has too few) optimizer steps",
        r"(?i:total (?:optimi[sz]ation|training|train) steps)\W{1,3}\d{1,2}\b(?!\d|,\d)"
        r"|\bNum examples\W{1,3}\d{1,2}\b(?!,)",
    ),
    Sign(
        r"^the run (?:makes a few|has too few) optimizer steps|^gradients are accumulated over more batches",
        rf"\b(?i:\w*accum\w*){GIVEN}(?:3[2-9]|[4-9]\d|\d{{3,4}})\b(?!\.)",
    ),
    Sign(
        r"^the run (?:makes a few|has too few) optimizer steps",
        r"['\"](?:max_steps|global_step)['\"]\s*:\s*(?:\d|[1-4]\d)\b",
        beside_in_file=r"log_history",
    ),
    Sign(
        r"^the run (?:makes a few|has too few) optimizer steps",
        rf"\b(?i:\w*accum\w*){GIVEN}(?:1[6-9]|2\d|3[01])\b(?!\.)",
        beside=rf"(?i:epochs){GIVEN}[123](?:\.0)?\b",
    ),
    Sign(
        r"^the run (?:makes a few|has too few) optimizer steps",
        rf"\b(?:\w*batch_?size\w*){GIVEN}(?:6[4-9]|[7-9]\d|\d{{3,4}})\b(?!\.)",
        unless=rf"\b(?:per_device_)?eval_batch_size{GIVEN}(?:6[4-9]|[7-9]\d|\d{{3,4}})\b",
    ),
    Sign(
        r"^a limit of a trial is still in force|^a limit that is meant for debugging"
        r"|^some of the given rows never reach|^the trainer counts far fewer rows",
        TRIAL_LIMIT,
    ),
    Sign(
        r"^a limit of a trial is still in force|^a limit that is meant for debugging"
        r"|^some of the given rows never reach|^the trainer counts far fewer rows",
        SLICE_OF_ROWS,
    ),
    Sign(
        r"^the trainer counts far fewer rows|^an epoch of the run does not have as many",
        r"(?i:num examples|num rows|number of (?:train(?:ing)? )?(?:examples|rows|samples)"
        r"|num_rows)\W{1,3}\d{1,3}\b(?!,)",
    ),
    Sign(
        r"^the run resumed from a checkpoint at its last step|^the run was resumed without its weights",
        RESUMED,
    ),
    Sign(
        r"^LLaMA-Factory resumes an earlier run",
        r"^\s*output_dir:",
        beside=r"^\s*(?:finetuning_type|stage):",
        unless=rf"overwrite_output_dir{GIVEN}[Tt]rue",
    ),
    Sign(
        r"^evaluation or logging would only",
        rf"\b(?:save|eval)_steps{GIVEN}[1-9]\d{{3,}}\b",
    ),
    Sign(
        r"^a setting has no effect, because",
        rf"\bmax_steps{GIVEN}[1-9]\d*",
        beside=rf"num_(?:train_)?epochs{GIVEN}\d",
        unless_in_file=WRITTEN,
    ),
    Sign(r"^a loop makes a new iterator over its loader", r"\bnext\(\s*iter\("),
    Sign(
        r"^the loop accumulates gradients by hand",
        r"\bloss\s*/=?\s*\(?\s*(?:\w+\.)?(?i:\w*accum\w*|ga_steps|grad_steps)",
        beside=(
            r"accelerator\.accumulate\(|Accelerator\(.{0,120}gradient_accumulation|deepspeed\.initialize"
            r"|accumulate_grad_batches"
        ),
    ),
    Sign(
        r"^a Lightning module's training_step returns no loss",
        r"def training_step\(",
        unless_in_file=r"return\s+(?:\w*loss|out\w*\b|\{|self\.\w+\(|losses?\[)",
    ),
    # At what rate
    Sign(
        r"^the learning rate is far below that of an adapter",
        RATE_OF_FULL_TRAINING,
        beside=LORA,
        unless=OTHER_TRAINING,
        unless_in_file=WRITTEN,
    ),
    Sign(
        r"^a step is smaller than bfloat16 can hold|^large weights never changed",
        rf"dtype\w*{GIVEN}(?:torch\.)?(?:bfloat16|bf16)\b|pure_bf16{GIVEN}{YES}|\.bfloat16\(\)|\.to\(.{{0,40}}bfloat16",
        beside=rf"{RATE}{TINY_RATE}",
        unless=rf"{LORA}|autocast|GRPO",
        unless_in_file=WRITTEN,
    ),
    Sign(
        r"^a step is smaller than bfloat16 can hold|^large weights never changed",
        rf"{RATE}{TINY_RATE}",
        beside=r"bfloat16|\bbf16\b",
        unless=rf"{LORA}|autocast|GRPO",
        unless_in_file=WRITTEN,
    ),
    Sign(
        r"^the DeepSpeed schedule replaces the|^DeepSpeed trains with another learning rate"
        r"|^DeepSpeed's engine trains",
        r"['\"](?:warmup_max_lr|warmup_min_lr)['\"]\s*:\s*[\d.]|['\"](?:Warmup(?:Decay|Cosine)?LR|OneCycle)['\"]",
    ),
    Sign(
        r"^DeepSpeed's engine trains|^DeepSpeed trains with another",
        r"['\"]lr['\"]\s*:\s*[\d.]",
        beside=r"zero_optimization|deepspeed",
    ),
    Sign(
        r"^steps are skipped because a fixed loss scale", r"['\"]?loss_scale['\"]?\s*[:=]\s*[1-9]"
    ),
    Sign(
        r"^dead batches are logged as 0",
        rf"logging_nan_inf_filter{GIVEN}[Tt]rue|nan_to_num\(|\bisnan\(\s*\w*loss"
        r"|['\"]?loss['\"]?\s*[:=]\s*['\"]?0\.0+['\"]?\s*[,}]|grad_norm['\"]?\s*[:=]\s*['\"]?nan",
    ),
    Sign(
        r"^dead batches are logged as 0",
        rf"\bfp16{GIVEN}{YES}|--fp16\b|\bdtype{GIVEN}(?:torch\.)?(?:float16|fp16)",
    ),
    Sign(
        r"^the settings train no weight",
        r"\b(?:learning_rate|num_train_epochs|num_epochs|freeze_trainable_layers"
        rf"|lora_alpha){GIVEN}0(?:\.0*)?(?![\d.eE])|\bdo_train{GIVEN}[Ff]alse",
        unless_in_file=WRITTEN,
    ),
    # Which weights
    Sign(
        r"^a config, collator or callback is built and never passed on",
        r"\bLoraConfig\(",
        unless_in_file=r"peft_config|get_peft_model\(|add_adapter\(|inject_adapter|prepare_model\(|PeftModel\(",
    ),
    Sign(
        r"^a config, collator or callback is built and never passed on",
        r"\bDataCollator\w*\(|\bcollator\w*\s*=",
        unless_in_file=r"data_collator|collate_fn",
    ),
    Sign(
        r"^a config, collator or callback is built and never passed on",
        r"(?:Callback|Stopping)\w*\($|^\w+\s*=\s*\w*(?:Callback|EarlyStopping)\w*\(",
        unless_in_file=r"callbacks\s*=|add_callback",
    ),
    Sign(
        r"^a config, collator or callback is built and never passed on",
        r"\b(?:SFTConfig|TrainingArguments|GenerationConfig)\(",
        unless_in_file=(
            r"\bargs\s*=|generation_config|TrainingArguments\b.{0,600}Trainer\(|Trainer\(\s*\w+\s*,"
            r"|HfArgumentParser|parse_args_into|Trainer\("
        ),
    ),
    Sign(
        r"^a quantization config is created|^a config, collator or callback",
        r"\bBitsAndBytesConfig\(",
        unless_in_file=r"\bquantization_config=|['\"]quantization_config['\"]",
    ),
    Sign(
        r"^the adapter was loaded frozen",
        r"\bPeft\w*\.from_pretrained\((?!.*is_trainable\s*=\s*True).*|\.load_adapter\((?!.*is_trainable\s*=\s*True).*",
        beside_in_file=TRAINS,
        unless_in_file=r"merge_and_unload",
    ),
    Sign(
        r"^the adapter was loaded frozen|^no parameter of the model requires a gradient"
        r"|^the output shows that hardly more than a norm",
        r"\brequires_grad_?\s*(?:=\s*|\(\s*)False|\bfreeze\w*\(",
        unless_in_file=r"requires_grad_?\s*(?:=\s*|\(\s*)True|get_peft_model\(|peft_config",
    ),
    Sign(
        r"^the output shows that hardly more than a norm|^no parameter of the model requires|^only norms and biases"
        r"|^the adapter was loaded frozen",
        r"(?i:trainable(?: params?| parameters|%)?)\W{1,3}(?:0\b(?!\.\d*[1-9])|0\.00\d)"
        r"|trainable%: 0\.0[01]?\d?\b|inject\w* (?:0|no) ",
    ),
    Sign(
        r"^a filter on weight names",
        r"\bif (?:not )?(?:any\()?['\"]?[\w.]+['\"]? (?:not )?in (?:n|name|k|key|pname|param_name)\b"
        r"|\bname\.(?:starts|ends)with\(",
        beside_in_file=r"named_parameters\(|requires_grad",
    ),
    Sign(r"^layers are chosen by numbers|^settings select layers by numbers", LAYERS),
    Sign(
        r"^most tensors of a fine-tuned model equal its base",
        r"\b(?:use_galore|galore_\w+|lisa_\w+|use_badam|badam_\w+|freeze_trainable_layers"
        r"|unfrozen_parameters)\b|optim\W{1,4}galore",
    ),
    Sign(
        r"^a name in the LoRA target modules|^some entries of target_modules",
        r"(?:target_modules|lora_target(?:_modules)?|lora_modules)\W.{0,120}(?:c_attn|c_proj"
        r"|query_key_value|\bquery\b|Wqkv|W_pack|qkv_proj|gate_up_proj|dense\w*|fc_in|fc1|\bw1\b|\bwq\b"
        r"|self_attn\.)",
    ),
    Sign(
        r"^the LoRA rank is larger than",
        rf"\b(?:r|lora_r|lora_rank|rank){GIVEN}(?:512|1024|2048|4096)\b",
    ),
    Sign(
        r"^LoRA has rank 1 on a single",
        rf"\b(?:lora_r|lora_rank|lora_dim){GIVEN}[1-4]\b(?!\.|\d)|['\"(\s,]r['\"]?\s*[=:]\s*[1-4]\b(?!\.)",
    ),
    Sign(
        r"^the scale of the adapter is far outside|^some engines do not read how this adapter",
        rf"\blora_alpha{GIVEN}(?:[1-4]|0?\.\d+|[5-9]\d\d|\d{{4}})\b(?!\.\d)|use_rslora{GIVEN}{YES}",
    ),
    Sign(
        r"^lm_head is trained in full",
        r"(?:modules_to_save|additional_target)\W(?!.*embed)[^\n]{0,80}lm_head",
    ),
    Sign(
        r"^a trained head is not in the file",
        r"(?:ForSequenceClassification|ForTokenClassification)\.from_pretrained\(|\bnum_labels\s*=",
        beside=LORA,
        unless=r"SEQ_CLS|TOKEN_CLS|modules_to_save",
    ),
    Sign(
        r"^the embedding rows of new tokens were not trained|^the data use added tokens",
        r"\.add_tokens\(|\.add_special_tokens\((?!\s*\{\s*['\"]pad_token['\"][^,]*\})"
        r"|\bresize_token_embeddings\(|\b(?:add_tokens|new_special_tokens"
        r"|additional_special_tokens)['\"]?\s*[:=]\s*|^\s*tokens:",
        beside=LORA,
        unless=r"modules_to_save|trainable_token_indices|additional_target|embed_tokens",
    ),
    Sign(
        r"^LoRA settings are given, but",
        r"\blora_(?:r|rank|alpha|target)\b",
        unless_in_file=(
            rf"adapter{GIVEN}q?lora|finetuning_type{GIVEN}lora|LoraConfig|use_peft|use_lora"
            rf"|train_type{GIVEN}lora|lora_attn_modules|get_peft_model|tuner_type|peft_type|Lora\w*\("
            r"|peft_config"
        ),
    ),
    Sign(
        r"^a model that has an adapter is wrapped",
        r"\bget_peft_model\(",
        beside_in_file=r"\bPeft\w*\.from_pretrained\(|peft_config\s*=|\.load_adapter\(",
        unless_in_file=r"merge_and_unload",
    ),
    Sign(
        r"^the code that makes the adapter ran again",
        r"\bget_peft_model\(",
        beside_in_file=r"\bfor_inference\(",
    ),
    Sign(r"^steps of the run's own optimizer", r"\bzero_grad\(", beside_in_file=OWN_LOOP),
    Sign(
        r"^the Kullback-Leibler loss of a student",
        r"\bkl_div\((?!.*batchmean).*|KLDivLoss\((?!.*batchmean).*",
    ),
    Sign(
        r"^a setting has another name",
        r"\bevaluation_strategy\b|\bper_gpu_\w+_batch_size\b|\bno_cuda\b|\bgroup_by_length\b",
    ),
    Sign(
        r"^a trainer gets an argument",
        r"\bSFTTrainer\(.*\b(?:dataset_text_field|max_seq_length|packing|tokenizer)\s*=",
    ),
    Sign(
        r"^a name is imported from TRL",
        r"^from trl\b.*\b(?:DataCollatorForCompletionOnlyLM|ConstantLengthDataset|setup_chat_format"
        r"|AutoModelForCausalLMWithValueHead)\b",
    ),
    Sign(
        r"^a data set is not described",
        r"^\s*dataset:\s*\w",
        beside=r"^\s*finetuning_type:",
        unless=r"['\"](?:file_name|hf_hub_url|script_url|ms_hub_url)['\"]",
    ),
    Sign(
        r"^preference training starts from the",
        r"^\s*(?:model_name_or_path|base_model):",
        beside=r"^\s*(?:stage:\s*(?:dpo|kto|ppo|rm)|rl:\s*(?:dpo|ipo|kto|orpo))\b",
        unless=r"^\s*(?:adapter_name_or_path|lora_model_dir):",
    ),
    Sign(
        r"^an adapter is loaded on another"
        r"|^the adapter is loaded but changes nothing",
        rf"\b(?:adapter_name_or_path|lora_model_dir|adapters){GIVEN}[\w./]",
    ),
    # What is saved
    Sign(
        r"^saved weights have module\. or _orig_mod\.",
        r"\bload_state_dict\(.{0,200}strict\s*=\s*False",
    ),
    Sign(
        r"^saved weights have module\. or _orig_mod\.|^the tensor names in the adapter file",
        r"\btorch\.compile\(|(?:Distributed)?DataParallel\(|\bDDP\(",
        beside=r"save_pretrained\(|torch\.save\(",
        unless=r"\.module\b|_orig_mod|unwrap_model",
    ),
    Sign(
        r"^the tensor names in the adapter file|^the adapter is loaded but changes nothing",
        r"(?i:missing adapter keys|unexpected keys|_orig_mod|base_model\.model\.base_model)"
        r"|set_peft_model_state_dict\(|AutoModelForImageTextToText|AutoModelForVision2Seq"
        r"|ForConditionalGeneration\.from_pretrained",
    ),
    Sign(
        r"^`model.state_dict` is replaced|^an adapter contains nothing",
        r"\.state_dict\s*=\s*\S|get_peft_model_state_dict\(",
    ),
    Sign(
        r"^an adapter contains nothing|^what was trained does not arrive",
        rf"stage3_gather_16bit_weights_on_model_save{GIVEN}false|zero3_save_16bit_model{GIVEN}false"
        rf"|['\"]?stage['\"]?\s*:\s*3\b|zero_?3|fsdp_state_dict_type{GIVEN}SHARDED",
        beside=r"save_pretrained\(|save_model\(|save_strategy|output_dir",
        unless=rf"stage3_gather_16bit_weights_on_model_save{GIVEN}true|zero_to_fp32",
    ),
    Sign(
        r"^the final save of a sharded",
        rf"fsdp_state_dict_type{GIVEN}(?:SHARDED|LOCAL)|zero3_save_16bit_model{GIVEN}false"
        rf"|stage3_gather_16bit_weights_on_model_save{GIVEN}false",
        unless=r"FULL_STATE_DICT|zero_to_fp32|merge-weights",
    ),
    Sign(
        r"^the limit on generated tokens",
        rf"\b(?:max_new_tokens|max_completion_length){GIVEN}\d{{1,3}}\b",
    ),
    Sign(r"^options are on a separate line", r"^--[A-Za-z]\w+"),
    Sign(
        r"^turns are marked as not to be trained",
        r"['\"](?:train['\"]\s*:\s*[Ff]alse|weight['\"]\s*:\s*0(?:\.0)?\s*[,}])",
    ),
    Sign(
        r"^what was trained does not arrive|^an adapter contains nothing",
        r"\btorch\.save\(\s*\{?.{0,80}\bfor\b.{0,80}\blora|if ['\"]lora\w*['\"] in|\blora_state_dict\("
        r"|\bload_state_dict\(.{0,120}strict\s*=\s*False|\.disable_adapters?\(|set_peft_model_state_dict\(",
    ),
    Sign(
        r"^the model that is saved as the tuned one",
        r"\.save_pretrained\(|\.push_to_hub\(",
        beside_in_file=MODEL_LOADED,
        unless_in_file=r"\.train\(|\.fit\(|backward\(|[Pp]eft|merge|load_state_dict|load_adapter|quantiz|Trainer",
    ),
    Sign(r"^the model that merge_and_unload returns", r"^[\w.]+\.merge_and_unload\("),
    Sign(
        r"^the saved and reloaded model is not",
        r"\bdeepcopy\(|\bema\w*\.|\bEMA\(|AveragedModel\(|\bswa_|\.tie_weights\(",
    ),
    Sign(
        r"^a model is saved before it is trained",
        r"\.save_pretrained\(|\.save_model\(",
        unless_in_file=r"\.(?:train|fit)\(\s*(?:resume\w*.{0,40})?\)",
        beside_in_file=r"from_pretrained\(",
    ),
    Sign(
        r"^a script keeps its worst checkpoint|^the best model is chosen in the wrong"
        r"|^the worst checkpoint is kept|^the checkpoint kept as the best",
        r"\bif\b.{0,60}[<>]=?\s*(?:self\.)?\w*best\w*|\bif\b.{0,20}\bbest\w*\s*[<>]",
    ),
    Sign(
        r"^the best model is chosen in the wrong|^the worst checkpoint is kept"
        r"|^the checkpoint kept as the best",
        rf"greater_is_better{GIVEN}[Ff]alse|metric_for_best_model{GIVEN}(?!(?:eval_)?loss)\w"
        r"|ModelCheckpoint\(.*monitor|\bmode\s*=\s*['\"](?:min|max)['\"]",
    ),
    Sign(
        r"^training ends at an early checkpoint|^load_best_model_at_end is set, but checkpoints"
        r"|^the checkpoint kept as the best",
        rf"load_best_model_at_end{GIVEN}{YES}|EarlyStopping\w*\(|early_stopping_patience{GIVEN}\d",
    ),
    # Losses, rewards and layers that are written by hand
    Sign(
        r"^a loss or a difference gets tensors of mismatched shapes",
        r"\b(?:mse|l1|smooth_l1|huber)_loss\(|\b(?:MSE|L1|SmoothL1|Huber)Loss\("
        r"|-\s*\w{1,20}\.mean\((?:dim\s*=\s*)?-?1\)",
    ),
    Sign(
        r"^a term of a custom policy loss has the wrong sign",
        r"(?i)\bloss\s*=\s*\(*\w*(?:ratio|log_?probs?|logps?)\w*\s*\*|\bloss\b.{0,40}\+\s*\w{0,20}(?:coef|beta)"
        r"\w*\s*\*\s*entropy",
    ),
    Sign(
        r"^a reward function rewards distance",
        r"(?:return|append\()\s*\[?\s*(?:float\(\s*)?(?:abs|levenshtein\w*|edit_distance)\(",
        beside=r"\bcompletions\b",
    ),
    Sign(
        r"^completions are ordered in blocks",
        r"(?i)\bprompts\s*\*\s*\w+|\.repeat\(\s*\w+\s*,\s*1\s*\)",
        beside=r"(?i)advantage|rewards",
    ),
    Sign(
        r"^pandas reads words in a column as missing",
        r"\bread_(?:csv|table)\(",
        unless=r"keep_default_na\s*=\s*False|na_filter\s*=\s*False",
    ),
    Sign(
        r"^the stride between windows is larger",
        r"\bfor\s+\w+\s+in\s+range\(\s*0\s*,\s*len\([^)]{1,40}\).{0,40},\s*\w*(?:stride|step)\w*\s*\)",
    ),
    Sign(
        r"^.len\(\). of a tokenizer's result",
        r"\blen\(\s*(?:self\.)?tok(?:enizer)?\((?:[^()]|\([^()]{0,80}\)){1,200}\)\s*\)",
    ),
    Sign(
        r"^a script merges an adapter by hand",
        r"lora_B.{0,120}@.{0,120}lora_A|\bb\w*(?:\.\w+\(\))?\s*@\s*a\b",
        beside=r"\blora_[AB]\b",
    ),
    Sign(
        r"^layers that a module keeps in a plain list",
        r"\bself\.\w+\s*=\s*[\[{(]\s*(?:['\"]\w+['\"]\s*:\s*)?(?:torch\.)?nn\.(?!Module(?:List|Dict))[A-Z]\w+\(",
    ),
    Sign(
        r"^a custom LoRA adapter initialises",
        r"\blora_?[AaBb]\w*\s*=\s*(?:torch\.)?nn\.(?:Parameter|Linear)\(",
    ),
)
