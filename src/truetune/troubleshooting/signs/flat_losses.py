"""Signs of what causes a loss that does not fall."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign_as_statement_patterns import SET, Sign

GIVEN = (
    r"['\"]?(?:\s*:\s*(?:float|int|bool|str)\b)?(?:,[^()]{0,60}?\bdefault)?"
    r"\s*[=: ]\s*(?:field\(\s*default\s*=\s*)?['\"]?"
)
"""As `SET`, and in a dataclass (`lr: float = 1e-4`) or an argument of a command (`"--lr", type=float, default=1e-4`)"""
RATE = r"(?i:\b(?:\w{1,20}[_.-])?(?:lr|learning[_-]?rate))"
# A rate of three digits and more after the point was computed by a schedule, and is printed by a log.
POWER = r"\d(?:\.\d{1,2})?[eE]-"
# 9e-7 at most: far below the rates of all weights (1e-6 to 5e-5), but for preferences and rewards.
TINY = rf"(?:0?\.0{{6,12}}[1-9]\d?|{POWER}0?(?:[7-9]|1\d))(?![\d.eE])"
# 1e-5 at most: a tenth of the usual rates of an adapter (1e-4 to 5e-4).
SMALL_OF_ADAPTER = rf"(?:0?\.0{{5}}[1-9]|0?\.00001|{POWER}0?6|1(?:\.0)?[eE]-0?5)(?![\d.eE])"
# 1e-3 at least: twice the largest usual rate of an adapter, and beyond that of all weights.
LARGE = rf"(?:0?\.00[1-9]\d?|0?\.0?[1-9]\d?|{POWER}0?[1-3]|[1-9]\d?(?:\.\d{{1,3}})?)(?![\d.eE])"
# 1e-4 at least: twice the largest usual rate of all weights.
LARGE_OF_ALL = rf"(?:{POWER}0?4|0?\.000[1-9]\d?)(?![\d.eE])"
NO_RECORD = r"^(?!.{0,600}\b(?:loss|step|epoch|iter)\b['\"]?\s*[=: ]\s*['\"]?[\d.]).{0,1900}?"
"""A statement up to a setting, if it is no record of a log, where a rate is one of a schedule"""
OF_STATES = r"^['\"](?:grad_norm|loss)['\"]:"
"""A line of trainer_state.json"""
PREFERENCES = (
    r"\b(?:DPO|KTO|ORPO|CPO|GRPO|RLOO|PPO)(?:Config|Trainer)|\b(?:rl|stage"
    r"|rlhf_type)\W{1,4}(?:dpo|kto|orpo|grpo|ppo)|simpo|reward_funcs"
)
ADAPTER = r"(?i:lora|\bpeft|\badapter\b)"
GROUP_REWARDS = r"\b(?:GRPO|RLOO)(?:Config|Trainer)|\brl\W{1,4}grpo|rlhf_type\W{1,4}grpo"
BACKWARD = r"\.backward\("
OWN_STEP = r"\b\w*opt\w*\.step\(|scaler\.step\(|\b(?:model_engine|engine|model)\.step\("
OPTIMIZER = (
    r"=\s*[\w.]{0,40}\b(?:\w{0,20}Adam\w*|SGD|Adafactor|Lion|Muon|\w{1,20}Optimizer"
    r"|\w{2,20}_optim\w*)\("
)
TRAINS = r"Trainer\(|\.backward\(|\.fit\(|trainer\.train\("
DECODERS = r"(?i)llama|mistral|qwen|gemma|\bgpt|\bphi-?\d|\bopt-|bloom|falcon|smollm|pythia"
COUNTED = r"(?:step|steps|i|it|idx|batch_idx|n|seen|count|num|total|denom)\w{0,10}"

NOTHING_TRAINED = (
    r"^nothing is trainable|hardly more than a norm or two|^no parameter of the model requires|^only norms and biases"
    r"|^most tensors of a fine-tuned model equal|^the settings train no weight"
)
MASKED = (
    r"^no token has a label|^the response marker that the trainer masks by"
    r"|^sequences have labels, but none of them"
    r"|^completion_only_loss is on, but the|^roles_to_train does not include the"
)
OTHER_ROWS = (
    r"^answers are paired with the questions|^rows are joined by position"
    r"|^labels do not belong"
)
IN_ORDER = (
    r"^the rows are not shuffled|^neighbouring rows come|^the loss takes the same course"
    r"|^the loss jumps up and then returns"
)
SCHEDULED = r"^the schedule has ended"
IN_FLOAT16 = (
    r"^activations or gradients overflow in float16|^the loss of a micro-batch is not finite"
    r"|^weights are NaN|^the loss scale of float16"
    r"|^a job trains a model in float16"
)
IN_BARE_16_BITS = (
    r"^weights in bfloat16 alone|^large weights never changed|^all norms are bit-identical"
    r"|^steps of the run's own optimizer leave"
)
CUT = (
    r"^no max_length is set|^max_length is not set, so TRL"
    r"|^training rows are too long"
)
NEW_WEIGHTS = (
    r"^the run starts with a loss above"
    r"|^a fine-tuning run trains a model whose weights are random"
    r"|^a fine-tuning job starts from"
)
TAKEN_UP = (
    r"^the run resumed from a checkpoint|^LLaMA-Factory resumes|^the checkpoint to resume from"
    r"|^the run was resumed without its weights"
)
OTHER_RATE = (
    r"^the optimizer and scheduler of ds_config|^the DeepSpeed schedule replaces the"
    r"|^DeepSpeed trains with another"
)

SIGNS: tuple[Sign, ...] = (
    # --- nothing trained
    Sign(
        NOTHING_TRAINED,
        r"\b[Tt]rainable params: (?:0|\d{1,3})(?![\d,.])|trainable%:? 0(?:\.0+)?(?![\d.])",
    ),
    Sign(
        NOTHING_TRAINED,
        r"\b(?:Auto)?Peft\w*\.from_pretrained\((?!.{0,400}is_trainable).*\)"
        r"|\.load_adapter\((?!.{0,300}is_trainable)",
        unless_in_file=r"merge_and_unload|requires_grad_?\(?\s*=?\s*True",
        beside_in_file=TRAINS,
    ),
    Sign(NOTHING_TRAINED, rf"\bis_trainable{SET}False|inference_mode{SET}True", beside=TRAINS),
    Sign(
        NOTHING_TRAINED,
        r"^\w{1,30}\.requires_grad(?:_\(\s*|\s*=\s*)False|^for\b.{0,120}requires_grad(?:_\(\s*"
        r"|\s*=\s*)False",
        preceded_by=r"get_peft_model\(|PeftModel",
    ),
    Sign(
        NOTHING_TRAINED,
        r"\bprepare_model_for_\w{1,4}bit_training\(",
        preceded_by=r"=\s*get_peft_model\(",
    ),
    Sign(
        NOTHING_TRAINED,
        rf"{NO_RECORD}(?i:learning_?rate|--lr|num_(?:train_)?epochs){SET}0(?:\.0+)?(?![\d.eE])",
        unless_in_file=OF_STATES,
    ),
    Sign(
        NOTHING_TRAINED,
        r"\bif\b.{0,80}\b(?:not )?in (?:n|name|pname|k|key)\b",
        beside_in_file=r"requires_grad",
    ),
    Sign(
        NOTHING_TRAINED,
        r"\.requires_grad(?:_\(\s*|\s*=\s*)False|\bfreeze\w{0,30}\s*[=:(]",
        beside=TRAINS,
        unless=rf"\bref\w*\.requires_grad|{ADAPTER}",
    ),
    Sign(
        r"^a filter on weight names",
        r"\bif\b.{0,80}\b(?:not )?in (?:n|name|pname|k|key)\b|\.startswith\(|re\.(?:search"
        r"|match|fullmatch)\(",
        beside_in_file=r"requires_grad",
    ),
    Sign(
        r"^layers are chosen by numbers|^settings select layers by numbers",
        r"layers_to_transform|freeze_trainable_layers|unfrozen_parameters|\.layers\[\s*-?\d"
        r"|['\"][\w.]{0,20}layers\.\d{1,3}[\w.]{0,40}['\"]\s*(?:in|\)|,|\])",
    ),
    Sign(
        r"^LoRA settings are given, but",
        r"\bLoraConfig\(|\blora_(?:r|rank|alpha)\b",
        unless=r"get_peft_model|peft_config|add_adapter|inject_adapter|\badapter\s*:"
        r"|finetuning_type\W+lora|--?lora\b|use_lora|tuner_type|train_type|Fast\w*Model"
        r"|use_peft|base_model_name_or_path",
        beside=TRAINS,
    ),
    Sign(
        r"^a model that has an adapter is wrapped",
        r"get_peft_model\(|peft_config\s*=",
        preceded_by=r"Peft\w*\.from_pretrained\(|get_peft_model\(",
    ),
    # --- the graph
    Sign(
        r"^reentrant gradient checkpointing over a frozen base"
        r"|^gradient checkpointing changes or loses",
        r"None of the inputs have requires_grad",
    ),
    Sign(
        r"^reentrant gradient checkpointing over a frozen base"
        r"|^gradient checkpointing changes or loses",
        r"gradient_checkpointing_enable\(|\bgradient_checkpointing\s*=\s*True"
        rf"|--gradient_checkpointing\b(?! [Ff]alse)|use_reentrant{SET}[Tt]rue",
        beside=ADAPTER,
        unless=rf"enable_input_require_grads|prepare_model_for_kbit|use_reentrant{SET}[Ff]alse"
        r"|Fast\w*Model|require_grads_hook|\b(?:SFT|DPO|KTO|ORPO|GRPO|RLOO)(?:Trainer|Config)"
        r"|base_model\s*:",
    ),
    Sign(
        r"^the graph is cut|^a loss is set to require a gradient",
        r"\bloss\w*\.requires_grad|\bloss\w*\s*=.{0,80}requires_grad\s*=\s*True"
        r"|set_grad_enabled\(\s*False"
        r"|\bloss\w*\s*[=+]=?[^=].{0,160}(?:\.detach\(\)|\.item\(\)|\.argmax\("
        r"|torch\.tensor\()|\.data\.clone\(\)\.requires_grad",
        beside_in_file=BACKWARD,
        unless_in_file=r"num_items_in_batch",
    ),
    Sign(
        r"^the graph is cut",
        r"\b(?:loss|out\w*|logits)\b.{0,20}=.{0,80}\.detach\(\)"
        r"|return .{0,40}loss.{0,20}\.(?:detach|item)\(\)",
        beside_in_file=r"def (?:compute_loss|training_step|forward)\b",
    ),
    Sign(
        r"^the graph is cut",
        r"^with torch\.(?:no_grad|inference_mode)\(",
        followed_by=BACKWARD,
        unless_in_file=r"\bref\w*\b|teacher|\.eval\(\)",
    ),
    Sign(
        r"^training_step of Lightning returns nothing",
        r"\bdef training_step\(",
        unless_in_file=r"\breturn\b.{0,60}loss|return \{|return self\.(?!log)\w|manual_backward"
        r"|automatic_optimization",
    ),
    # --- labels
    Sign(
        MASKED,
        r"\b(?:response_template|response_part|instruction_part|instruction_template"
        rf"|response_key|RESPONSE\w*){SET}\S|\b(?:train_on_responses_only"
        r"|\w{0,40}CompletionOnlyLM)\(",
    ),
    Sign(MASKED, rf"\b(?:assistant_only_loss|train_on_completions_only){SET}[Tt]rue"),
    Sign(
        r"^roles_to_train does not include the",
        r"\broles_to_train\b|message_field_role|\broles\s*:",
    ),
    Sign(r"^completion_only_loss is on, but the", rf"completion_only_loss{SET}[Tt]rue"),
    Sign(
        MASKED,
        r"\blab\w*\b.{0,200}\[\s*:\s*[\w.\[\]'\"]{0,40}(?i:max|len|cut|limit|block|ctx|size|\d{3})",
        beside=rf"(?i:max_?(?:seq_?)?len\w*|cut\w*|limit|block\w*){GIVEN}(?:64|128|256|384|512)\b",
    ),
    Sign(
        MASKED,
        r"\b(?:labels?|lab|y|target\w*)\[.{0,80}\]\s*=\s*(?:-\s?100|IGNORE\w*|ignore_index)",
        beside=rf"(?i:max_?(?:seq_?)?len\w*|cut\w*|limit){GIVEN}(?:64|128|256|384|512)\b",
    ),
    Sign(
        r"^no token has a label",
        rf"\b(?:mask_prompt|train_on_prompt|mask_prompts?|train_on_input\w*){SET}\w",
    ),
    Sign(
        r"^the loss covers the whole text",
        rf"train_on_inputs?{SET}[Tt]rue|train_on_prompt{SET}[Tt]rue|train_on_input{SET}[Tt]rue"
        r"|dataset_text_field",
    ),
    Sign(
        r"^labels are a plain copy",
        r"\blabels?['\"\]]{0,3}\s*[:=]\s*[^#]{0,80}(?:input_ids|\bids\b|\.clone\(|\.copy\()",
        unless_in_file=r"-\s?100|ignore_index",
    ),
    Sign(
        r"^labels do not belong|^labels of tokenized rows are not",
        r"\b(?:labels?|lab|targets?|y)\b['\"\]]{0,3}\s*[:=].{0,120}\[(?:\.\.\.,|:,)?\s*1:\s*\]"
        r"|torch\.roll\(|\bx\w*, y\w*\s*=",
        beside=r"\blabels['\"]?\s*[=:]|num_labels|ForCausalLM|LMHead",
        unless_in_file=r"logits?\w*\[(?:\.\.\.|:),\s*:-1|shift_logits|num_items_in_batch",
    ),
    Sign(
        r"^a custom loss of a causal model",
        r"cross_entropy\(|CrossEntropyLoss\(|nll_loss\(",
        beside=r"CausalLM|LMHead",
        unless_in_file=r":\s*-1|shift|ForSequenceClassification|\[1:\]",
    ),
    Sign(
        r"^a loss is given scores on another scale",
        r"(?<!log_)softmax\(|\bSoftmax\(|nll_loss\(|NLLLoss\(|\bBCELoss\(|log_softmax\(",
        beside_in_file=r"cross_entropy\(|CrossEntropyLoss\(|nll_loss\(|NLLLoss\(|BCELoss\(|kl_div\(",
    ),
    Sign(
        r"^the Kullback-Leibler loss",
        r"(?:kl_div|KLDivLoss)\((?!.{0,200}batchmean)",
        unless_in_file=r"batchmean|reduction\s*=\s*['\"](?:sum|none)",
    ),
    Sign(
        r"^tokens are taken out of the attention mask",
        r"(?:attention_)?mask\w*['\"\]]{0,3}\[.{0,60}\]\s*=\s*(?:0|False)\b"
        r"|attention_mask['\"]?\s*[:=]\s*\(?\[0\]\s*\*",
    ),
    Sign(
        r"^labels are counted off from the end",
        r"\blabels?\[.{0,20}-\s*\w+.{0,10}\]|\[\s*-\s*(?:len\(|\w*len\w*|n_\w+|\w*ans\w*)",
    ),
    Sign(
        r"^if the template marks no answer|^the collator gives labels",
        r"return_assistant_tokens_mask|assistant_masks|\{%-? generation"
        r"|DataCollatorForLanguageModeling\(",
    ),
    Sign(r"^a classifier has one output", rf"num_labels{SET}1\b|problem_type{SET}\w*regression"),
    Sign(
        r"^a classifier reads its answer off a pad",
        r"ForSequenceClassification\.from_pretrained\((?!.{0,400}pad_token_id)",
        beside=DECODERS,
        unless=r"config\.pad_token_id\s*=|pad_token_id\s*=\s*\w*tok",
    ),
    # --- rows
    Sign(
        OTHER_ROWS,
        r"\.sample\(\s*frac|random\.(?:Random\([^)]{0,20}\)\.)?shuffle\(|\.permutation\("
        r"|sort_values\(|\bsorted\(|\.sort\("
        r"|\.dropna\(|drop_duplicates\(|\bjoin\b.{0,40}\bzip\(",
        beside_in_file=r"\bzip\(|reset_index\(|DataFrame\(|axis\s*=\s*1|pd\.concat\(|add_column\(|\.values\b"
        r"|\.tolist\(",
        unless_in_file=r"\bmerge\(|\.join\(\s*\w+\s*,|\.grad\b",
    ),
    Sign(
        r"^the answers can't be learned",
        r"b64encode|base64|hexdigest|\.hex\(\)|uuid4|random\.choice\([^)]{0,60}(?:answ|label|repl)",
    ),
    Sign(
        r"^the answers can't be learned",
        r"['\"](?=[A-Za-z+/]{0,40}\d)(?=[a-z0-9+/]{0,40}[A-Z])[A-Za-z0-9+/]{60,}={0,2}['\"]"
        r"|['\"][0-9a-f]{64,}['\"]",
    ),
    Sign(
        IN_ORDER,
        rf"(?<!_)\bshuffle(?:_dataset)?{SET}[Ff]alse|shuffle_(?:dataset|merged_datasets"
        rf"|train\w*){SET}[Ff]alse|SequentialSampler|group_by_length{SET}[Tt]rue"
        rf"|curriculum_sampling|disable_shuffling{SET}[Tt]rue|streaming{SET}[Tt]rue",
        unless=r"\.shuffle\(",
    ),
    Sign(
        IN_ORDER,
        r"^(?!.{0,200}(?i:val|test|eval|dev)).{0,200}\bDataLoader\((?!.{0,400}(?:shuffle"
        r"|sampler)).*\)",
        unless_in_file=r"(?i)for \w+ in .{0,40}(?:eval|val|test)\w*:|\.shuffle\(",
        beside=BACKWARD,
    ),
    Sign(
        r"^neighbouring rows come|^the rows are not shuffled",
        r"concatenate_datasets\(|\bsorted\([^)]{0,80}(?:rows?|data|train|records)|\.sort\("
        r"|sort_values\(",
        unless=r"\.shuffle\(|sample\(frac",
        beside=TRAINS,
    ),
    Sign(
        r"^rows are transformed, but the result",
        r"^\w{1,30}(?:\[['\"]\w{1,30}['\"]\])?\.(?:map|filter|rename_columns?|select"
        r"|remove_columns|cast_column|shuffle|train_test_split|add_column)\(",
        unless_in_file=r"^(?:random|rng|np|rs)\.shuffle\(|^\w+\.shuffle\(\w+\)",
    ),
    Sign(
        r"^a function that is written for one row",
        r"\.map\(.{0,200}batched\s*=\s*True",
        beside_in_file=r"\bf['\"][^'\"]{0,200}\{\w{1,20}\[",
    ),
    Sign(
        r"^a model is trained on rows that another script tokenized|^the rows contain token ids",
        r"load_from_disk\(|read_parquet\(|np\.memmap\(|tokenized_path|dataset_prepared_path"
        r"|\.arrow\b",
        beside=TRAINS,
    ),
    Sign(
        r"^a prompt in Gemma's chat format",
        rf"add_special_tokens{SET}False|<start_of_turn>",
        beside=r"(?i)gemma",
    ),
    Sign(
        CUT,
        r"(?:max_(?:seq_)?len\w*|cutoff_len|sequence_len|model_max_length|block_size"
        rf"|MAX_LEN\w*){GIVEN}(?:64|128|256|384|512)\b(?!\.)",
        beside=TRAINS + r"|base_model|model_name_or_path",
    ),
    Sign(
        CUT,
        r"\bSFTConfig\((?!.{0,1500}max_(?:seq_)?length).*\)|\bSFTTrainer\(",
        unless=r"max_(?:seq_)?length|packing\W+True",
    ),
    Sign(
        r"^the evaluation's rows are made by another",
        r"\b\w{0,20}(?:eval|val|valid|dev|test)\w{0,20}\s*=.{0,120}\.map\(",
    ),
    Sign(r"^a loop makes a new iterator", r"next\(\s*iter\(", beside=BACKWARD),
    # --- the rate
    Sign(
        r"^the learning rate is far too small|^the learning rates of all steps sum",
        rf"{NO_RECORD}(?:{RATE}{GIVEN}{TINY}|\b(?!\w{{0,20}}(?:eps|tol|min|delta|decay|loss"
        rf"|norm|beta|alpha))[A-Za-z_]\w{{1,30}}{GIVEN}{POWER}0?(?:[89]|1\d)(?![\d.eE]))",
        unless=PREFERENCES,
        unless_in_file=OF_STATES,
    ),
    Sign(
        r"^the learning rate is far too small",
        rf"{NO_RECORD}{RATE}{GIVEN}{SMALL_OF_ADAPTER}",
        beside=ADAPTER,
        unless=PREFERENCES,
        unless_in_file=OF_STATES,
    ),
    Sign(
        r"^the learning rate is far too small",
        rf"{NO_RECORD}{RATE}{GIVEN}[12](?:\.\d)?[eE]-0?6(?![\d.eE])",
        unless=PREFERENCES,
        unless_in_file=OF_STATES,
    ),
    Sign(
        r"^the learning rate is far too large",
        rf"{NO_RECORD}{RATE}{GIVEN}{LARGE}",
        unless_in_file=OF_STATES,
        unless=r"\bSGD\(|PromptTuning|PrefixTuning|Adafactor\(|adafactor",
    ),
    Sign(
        r"^the learning rate is far too large",
        rf"{RATE}{GIVEN}{LARGE_OF_ALL}",
        unless=rf"{ADAPTER}|PromptTuning|from_config\(|\bt5\b|Adafactor|finetuning_type\W+freeze",
    ),
    Sign(
        r"^the learning rate is far too large",
        rf"{RATE}{GIVEN}(?:[5-9](?:\.\d{{1,2}})?[eE]-0?4|0?\.000[5-9])(?![\d.eE])",
        unless=r"PromptTuning|Adafactor",
    ),
    Sign(
        OTHER_RATE,
        r"['\"](?:lr|warmup_max_lr)['\"]\s*:\s*\d",
        beside=r"(?i)deepspeed|zero_optimization",
    ),
    Sign(OTHER_RATE, r"deepspeed\.initialize\((?!.{0,300}optimizer)"),
    Sign(
        r"^an optimizer that scales nothing",
        rf"\bSGD\(|\boptim(?:izer)?(?:_name)?{GIVEN}(?:torch\.optim\.)?(?i:sgd)\b"
        r"|PromptTuningConfig|PrefixTuningConfig|PromptEncoderConfig|P(?:ROMPT|REFIX)_TUNING",
    ),
    Sign(
        r"^Adafactor sets its own rate",
        rf"\bAdafactor\((?!.{{0,300}}relative_step\s*=\s*False)|warmup_init{GIVEN}[Tt]rue"
        rf"|relative_step{GIVEN}[Tt]rue|AdafactorSchedule\(",
    ),
    Sign(
        r"^the adapter is scaled away",
        rf"lora_alpha{GIVEN}(?:0?\.\d+|[1-4](?:\.0)?)(?![\d.])|\balpha{GIVEN}(?:0?\.\d+"
        r"|[1-4](?:\.0)?)(?![\d.])",
        beside=ADAPTER,
    ),
    Sign(
        r"^the adapter is scaled away",
        rf"lora_alpha{GIVEN}(?:8|16)\b",
        beside=rf"\b(?:lora_)?(?:r|rank|lora_dim){GIVEN}(?:128|256|512)\b",
    ),
    Sign(
        r"^the adapter is scaled far up",
        rf"lora_alpha{GIVEN}(?:[2-9]\d\d|\d{{4}})\b|use_rslora{GIVEN}[Tt]rue",
    ),
    Sign(
        r"^LoRA has rank 1 on a single",
        rf"(?:\blora_r(?:ank)?|lora_dim){GIVEN}[12]\b(?![.\d])"
        r"|LoraConfig\(.{0,300}\br\s*=\s*[12]\b|get_peft_model\(.{0,300}\br\s*=\s*[12]\b",
    ),
    Sign(
        r"^nearly every gradient is clipped|^a hyperparameter in code",
        r"(?:max_grad_norm|gradient_clip_val|gradient_clipping|grad_clip|clip_grad_norm"
        rf"|max_norm){GIVEN}(?:0?\.\d+|\d(?:\.\d+)?[eE]-\d+)\b"
        r"|clip_grad_norm_\([^)]{0,60},\s*(?:0?\.[0-4]\d*|\d[eE]-\d+)\s*\)"
        r"|clip_grad_value_\(",
    ),
    Sign(
        r"^a hyperparameter in code",
        rf"(?:dropout\w{{0,10}}){GIVEN}(?:0?\.[7-9]\d*|1(?:\.0)?)(?![\d.])"
        rf"|weight_decay{GIVEN}(?:[1-9]\d*|0?\.[5-9]\d*)(?![eE])"
        rf"|label_smoothing\w{{0,10}}{GIVEN}(?:0?\.[3-9]|1)|beta[12]{GIVEN}(?:0?\.[0-7]"
        rf"|1(?:\.0)?\b)|\beps(?:ilon)?{GIVEN}(?:0?\.0*[1-9]|\d[eE]-0?[1-4])\b",
    ),
    # --- the schedule
    Sign(
        SCHEDULED,
        rf"(?i:warm_?up\w{{0,20}}){GIVEN}(?:[5-9]\d\d|\d{{4,6}}|\d[\d_]{{3,7}}"
        r"|\d{1,2}[eE]\d)\b(?![.\d])|(?i:warm_?up(?:_?ratio|_frac\w*|_proportion"
        rf"|_percent)?){GIVEN}(?:0?\.[2-9]\d*|1(?:\.0)?)(?![\d.])",
    ),
    Sign(
        SCHEDULED,
        r"\b(?:total_num_steps|num_training_steps|total_steps|t_total|T_max|lr_decay_(?:iters"
        rf"|steps|ratio)|decay_steps|num_cycles|max_iters|total_iters){GIVEN}\d|\b(?:Step"
        r"|Exponential|MultiStep)LR\(|T_max\s*=\s*[\w.]{0,40}epoch",
    ),
    Sign(
        SCHEDULED,
        r"\bget_\w{0,30}schedul\w*\(.{0,300}\blen\(",
        beside_in_file=r"\.prepare\(|%.{0,60}(?i:acc)\w*",
    ),
    Sign(SCHEDULED, rf"(?i:warm_?up\w{{0,20}}){GIVEN}[1-4]\d\d\b(?![.\d])"),
    Sign(
        r"^the scheduler counts optimizer steps",
        r"\breturn\b.{0,200}(?:['\"](?:lr_scheduler|scheduler)['\"]\s*:|\[\s*\w*sche?d\w*\s*\]"
        r"|\[\s*\w*opt\w*\s*\]\s*,)",
        unless_in_file=r"(?<!logging_)interval['\"]?\s*\]?\s*[:=]\s*['\"]step",
    ),
    Sign(
        r"^the scheduler counts optimizer steps",
        r"\b\w*(?:sche?d|lr_s)\w*\.step\(\s*\)",
        preceded_by=r"^\w*(?:loss|total|run|sum)\w* \+= .{0,80}\.item\(",
    ),
    Sign(
        r"^a warm-up is set, but the schedule",
        rf"lr_scheduler(?:_type)?{GIVEN}constant\b(?!_with)",
        beside=r"(?i)warm_?up",
    ),
    # --- the loop
    Sign(
        r"^the optimizer never steps",
        OPTIMIZER,
        followed_by=r"=\s*[\w.]{0,40}(?:get_peft_model|Peft\w{0,20}\.from_pretrained|inject_adapter\w*"
        r"|FSDP|FullyShardedDataParallel)\(|^fully_shard\(|\badd_adapter\("
        r"|^\w*model\w*\s*=.{0,60}\.to\(|resize_token_embeddings\(",
    ),
    Sign(
        r"^the optimizer never steps",
        r"\bzero_grad\(",
        preceded_by=BACKWARD,
        followed_by=r"\b\w*opt\w*\.step\(|scaler\.step\(",
    ),
    Sign(r"^the optimizer never steps", r"\.backward\(.{0,200}zero_grad\(.{0,200}\.step\("),
    Sign(
        r"^the optimizer never steps",
        BACKWARD,
        unless_in_file=OWN_STEP + r"|manual_backward|def backward",
    ),
    Sign(
        r"^a hand-written loop accumulates gradients",
        BACKWARD,
        beside_in_file=r"%.{0,60}(?i:acc\w*|update_every)\w*",
        unless_in_file=r"/\s*[\w.]{0,40}(?i:acc)|\.accumulate\(",
    ),
    Sign(
        r"^a hand-written loop never clears",
        OWN_STEP,
        unless_in_file=r"zero_grad|\.grad\s*=\s*None|model_engine|engine\.step|set_to_none",
        beside_in_file=BACKWARD,
    ),
    Sign(
        r"^a hand-written loop updates float16|^the trained weights are float16",
        r"from_pretrained\(.{0,400}(?:torch\.float16|['\"]float16['\"])|\.half\(\)"
        r"|\bdtype\w*\s*[=:]\s*['\"]?(?:torch\.)?float16",
        beside=BACKWARD,
        unless=rf"autocast|GradScaler|{ADAPTER}|4bit|Accelerator\(",
    ),
    Sign(
        r"^the loop accumulates gradients by hand",
        r"%.{0,60}(?:accum|ACCUM|grad_acc)\w*",
        beside=r"deepspeed\.initialize|Accelerator\(.{0,120}gradient_accumulation|\.accumulate\(",
    ),
    Sign(
        r"^gradients are accumulated over more batches|^the run makes only a few optimizer steps",
        rf"(?i:\b\w{{0,20}}accum\w{{0,30}}){GIVEN}(?:6[4-9]|[7-9]\d|\d{{3,4}})\b(?![.\d])",
    ),
    Sign(
        r"^the run makes only a few optimizer steps",
        r"Total optimization steps = \d{1,2}$|^100%\|.{0,20}\| (\d{1,2})/\1 \[",
    ),
    Sign(
        r"^the run makes only a few optimizer steps",
        rf"\bmax_steps{GIVEN}[1-9]\d?\b(?![.\d])"
        rf"|(?i:\b\w{{0,20}}accum\w{{0,30}}){GIVEN}(?:3[2-9]|[4-6]\d)\b(?![.\d])",
    ),
    Sign(
        r"^the data do not fill one packed batch",
        rf"(?:sample_|\b)packing{SET}[Tt]rue|neat_packing{SET}[Tt]rue",
    ),
    Sign(
        r"^one row is a step",
        r"(?:(?<!eval_)\bbatch_size|train_batch_size|micro_batch_size"
        rf"|BATCH\w{{0,10}}){GIVEN}1\b(?![.\d])",
        beside=TRAINS + r"|base_model|model_name_or_path",
        unless=rf"(?i:accum\w{{0,30}}){GIVEN}(?:[2-9]|\d\d)",
    ),
    Sign(
        r"^the printed loss is a mean since",
        r"\b(?:run\w*|total\w*|tot|cum\w*|sum\w*|epoch_\w+|acc\w*|train_|avg\w*|ema"
        rf"|\w*loss_sum|\w*losses)\w{{0,20}}\s*/\s*\(?\s*{COUNTED}|(?:mean"
        r"|average)\(\s*\w*losses\s*\)|sum\(\s*\w*losses\s*\)\s*/",
    ),
    # --- numbers
    Sign(
        IN_FLOAT16,
        r"(?<!\w)fp16['\"]?\s*[=:]\s*(?:['\"]?[Tt]rue|\{(?!.{0,40}(?:false|auto)))"
        rf"|--fp16\b(?! [Ff]alse)|precision{SET}(?:16\b(?!-true)|16-mixed|fp16|float16)"
        rf"|mixed_precision{SET}fp16|\bGradScaler\(",
    ),
    Sign(
        IN_FLOAT16,
        r"(?<!compute_)dtype\s*[=:]\s*['\"]?(?:torch\.)?float16|\.half\(\)",
        beside_in_file=TRAINS,
    ),
    Sign(
        r"^DeepSpeed's loss scale is a fixed",
        r"['\"]loss_scale['\"]\s*:\s*(?!0\b)\d|static_loss_scale|Attempted loss scale",
    ),
    Sign(
        IN_BARE_16_BITS,
        r"from_pretrained\(.{0,400}(?:torch\.bfloat16|['\"]bfloat16['\"])|\.bfloat16\(\)"
        r"|\.to\([^)]{0,40}bfloat16|bf16-true|pure_bf16|^dtype: bf16"
        r"|\bdtype\w*\s*[:=]\s*['\"]?(?:torch\.)?bfloat16",
        beside=TRAINS + r"|\btune run",
        unless=rf"{ADAPTER}|load_in_4bit|deepspeed|zero_optim|FSDP|\.float\(\)",
    ),
    Sign(
        r"^the logged loss is multiplied|^a hand-written loss that breaks accumulation"
        r"|^supervised tokens do not have the same weight",
        r"\bdef compute_loss\(",
        unless_in_file=r"/\s*num_items_in_batch",
    ),
    Sign(
        r"^the logged loss is multiplied|^a hand-written loss that breaks accumulation"
        r"|^supervised tokens do not have the same weight",
        r"compute_loss_func|model_accepts_loss_kwargs",
    ),
    Sign(
        r"^the logged loss is multiplied", r"transformers\s*[=~>]=\s*4\.4[5-8]|Version: 4\.4[5-8]"
    ),
    # --- where it starts
    Sign(
        NEW_WEIGHTS,
        r"\.from_config\(|\b\w{2,30}(?:ForCausalLM|LMHeadModel|ForConditionalGeneration"
        r"|ForSequenceClassification)\(\s*\w{0,30}(?i:config|cfg|conf)\w{0,10}\s*\)"
        r"|--config_name|ignore_mismatched_sizes|newly initialized|random_init",
    ),
    Sign(NEW_WEIGHTS, r"resize_token_embeddings\(|strict\s*=\s*False|torch\.compile\(|_orig_mod"),
    Sign(
        TAKEN_UP,
        rf"resume_from_checkpoint{GIVEN}(?!None|[Ff]alse|null)[\w./]|--resume\b"
        rf"|Continuing training from|overwrite_output_dir{SET}[Ff]alse|resume_download"
        r"|ckpt_path\s*=|auto_resume",
    ),
    Sign(
        r"^the run was resumed without its weights",
        r"trainer\.train\(\s*\)|\.load_state_dict\(|torch\.load\(",
        beside=r"(?i)requeue|preempt|SIGUSR|restart|spot",
    ),
    Sign(
        r"^there is nothing left to learn",
        r"['\"]loss['\"]:\s*['\"]?0\.[0-4]\d*.{0,160}['\"]epoch['\"]:\s*['\"]?0\.0[0-2]",
    ),
    Sign(
        r"^the rows were generated by the very model",
        r"\.generate\(|\.chat\(|completions\.create\(|ollama\.chat",
        beside_in_file=r"(?i:train|sft|synth|distil|self|generated)[\w/.-]{0,40}\.jsonl?\b",
        unless_in_file=r"Trainer\(|\.backward\(",
    ),
    # --- rewards
    Sign(
        r"^of GRPO the loss is no measure|^a reward function uses a completion",
        r"\bre\.(?:search|match|fullmatch|findall|compile)\(|\b(?:1(?:\.0)?"
        r"|\d(?:\.\d)?)\s+if\b.{0,120}|\.append\(.{0,80}==",
        beside=GROUP_REWARDS,
        beside_in_file=r"def \w*(?:reward|score|correct|format|check)\w*\(",
    ),
    Sign(
        r"^of GRPO the loss is no measure|^a reward function uses a completion",
        r"\bdef \w*(?:reward|correct|score|format)\w*\(|reward_funcs",
        beside=GROUP_REWARDS,
    ),
    Sign(
        r"^of GRPO the loss is no measure",
        rf"max_completion_length{GIVEN}\d{{1,3}}\b|num_generations{GIVEN}[1-4]\b",
        beside=GROUP_REWARDS,
    ),
)
"""The most telling sign of a cause first: its lines are those that are printed."""
