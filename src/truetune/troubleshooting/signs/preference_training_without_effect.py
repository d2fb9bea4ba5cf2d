"""Signs of what causes a preference training without effect."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign_as_statement_patterns import GIVEN, Sign

CHOSEN = r"(?:chosen|preferred|winner|win|good|pos|better|best|accepted|y_w)"
REJECTED = r"(?:rejected|reject|loser|lose|bad|neg|worse|worst|y_l)"
PREFERS = r"(?i:\bdpo|\borpo|\bkto|\bsimpo|\bcpo\b|\bipo\b|chosen|grpo|rloo|reward)"
PAIRS = r"chosen|rejected"
OWN_LOSS = r"logsigmoid\(|log_sigmoid|-\s*\w{0,8}\.?log\(\w{0,8}\.?sigmoid"
POLICY = r"(?:self\.)?\w{0,8}(?:model|policy|actor|net|student|lm)\w{0,4}"
GROUP = r"GRPO|grpo|RLOO|rloo|adv_estimator|num_generations"
HUB = r"[A-Za-z][\w-]{1,40}/[\w.-]{2,60}"
# 512 tokens: prompts of chats fill half of it, and answers have 150 to 400. At 256 usual faults were missed; 1,024 is
# what most sound runs set.
SHORT = r"(?:\d{2}|[1-4]\d\d|50\d|51[0-2])\b"
TRAINS_DPO = r"DPOTrainer|DPOConfig|stage['\"]?\s*[=: ]\s*['\"]?(?:dpo|sft|kto)|rl\s*:\s*\w"

_PAIRS = (
    Sign(
        "^both sides of a pair are the same tokens",
        r"chosen['\"]?\]?\s*[=:]\s*([^,}]{3,80}),\s*['\"]?rejected['\"]?\]?\s*[=:]\s*\1\s*[,})]"
        r"|max\(([^()]{1,40})\).{0,80}max\(\2\)|(?:best|top)\w{0,10}\s*=\s*(?:max|sorted)\(",
        beside_in_file=PAIRS,
    ),
    Sign(
        "^both sides of a pair are the same tokens|^no token of the answers is left in the loss"
        "|max_length is not set, so TRL|training rows are too long",
        r"\b(?:max_(?:seq_|prompt_|sequence_)?length|max_len|cutoff_len|sequence_len"
        rf"|MAX_LEN\w{{0,8}}){GIVEN}{SHORT}",
        beside=PREFERS,
    ),
    Sign(
        "^no token of the answers is left in the loss",
        r"logps/(?:chosen|rejected)['\"]?\s*[:=]\s*['\"]?-?0\.0\b",
    ),
    Sign(
        "^the labels are random or contradict each other",
        rf"\b{CHOSEN}\w{{0,10}}['\"]?\]?\s*[=:]\s*.{{0,40}}(?:response_a|answer_a|response_1|output_1"
        r"|completion_a|_a\b|\[0\])",
        unless_in_file=r"winner|\bsort(?:ed)?\(|\bmax\(|score|preferred|rank",
    ),
    Sign(
        "^the labels are random or contradict each other|^a cast is always true",
        r"\bwinner\b|\bpreferred\b|\bpreference\b|random\.(?:choice|random|shuffle)\(|astype\(bool\)"
        r"|\bbool\(|\blabel['\"]?\]?\s*==\s*['\"\d]",
        beside_in_file=rf"{PAIRS}|KTO|kto|desirable|['\"]label['\"]",
    ),
    Sign(
        "^each pair is in the data in both orders",
        r"permutations\(|\(\s*b\s*,\s*a\s*\)|\[::-1\]|reversed\(|swap"
        r"|chosen['\"]?\]?\s*[=:]\s*\w{0,20}(?:_b|b|_2)\b|for \w, \w in \(\(",
        beside_in_file=PAIRS,
    ),
    Sign(
        "^the sides are exchanged|^a script picks the worse answer as chosen",
        rf"(?<![/\w])chosen\w{{0,6}}['\"]?\]?\s*[=:]\s*[^,]{{0,60}}(?:{REJECTED}\b|\bmin\(|\[-1\]|model"
        r"|\blow)|(?<![/\w])rejected\w{0,6}['\"]?\]?\s*[=:]\s*[^,]{0,60}(?:chosen|\bbest\b|\bmax\("
        r"|winner|agent|human|gold|\bhigh)"
        r"|['\"](?:rejected|lose\w{0,2}|worse)['\"]\s*:\s*['\"]chosen['\"]"
        r"|field_chosen\s*:\s*\w{0,10}(?:reject|lose|worse|bad)",
    ),
    Sign(
        "^the sides are exchanged|^a script picks the worse answer as chosen",
        r"sort(?:ed)?\(.{0,100}(?:score|reward|rating|rank|votes|reverse)|sort_values\(|\bargmin"
        r"|\bargmax|\bnlargest|\bnsmallest|rename_columns?\(|['\"]chosen['\"]\s*:\s*['\"]"
        r"|if .{0,60}(?:score|reward|rating|rank|votes)\w{0,8}.{0,20}[<>]|column\w{0,8}.{0,20}chosen"
        r"|field_(?:chosen|rejected)\s*:",
        beside_in_file=PAIRS,
    ),
    Sign(
        "^the rejected answers are all alike|^one phrase distinguishes the chosen",
        rf"\b{REJECTED}\w{{0,8}}['\"]?\]?\s*[=:]\s*\(?f?['\"]|REFUSAL\w{{0,4}}\s*=|(?:I'm sorry"
        r"|I cannot|I can't|I don't know|As an AI)"
        rf"|\b{REJECTED}\w{{0,8}}['\"]?\]?\s*[=:]\s*.{{0,60}}(?:\[:\s*[\w/ ]{{1,20}}\]|random|shuffle"
        r"|truncate|corrupt|\.upper\(|\.lower\()",
        beside_in_file=PAIRS,
    ),
    Sign(
        "^the rejected answers belong to other prompts|^rejected answers belong to the prompts of other pairs",
        rf"\bzip\([^)]{{0,100}}(?:{CHOSEN}|{REJECTED})|random\.(?:choice|sample)\(|\.shuffle\("
        rf"|\b{REJECTED}\w{{0,8}}\s*=\s*\[.{{0,80}}\bif\b",
        beside_in_file=PAIRS,
    ),
    Sign(
        "^many pairs are ties",
        r"if .{0,60}(?:score|rating|reward|rank|votes)\w{0,8}['\"\])]{0,3}\s*(?:>=|<=)|(?:score"
        r"|rating)_?(?:chosen|rejected)|(?:chosen|rejected)_?(?:score|rating)|\bmax\(.{0,80}(?:score"
        r"|reward|rating)|sort(?:ed)?\(.{0,80}(?:score|reward|rating)",
        beside_in_file=PAIRS,
    ),
    Sign(
        "^the length of the answers shows which one is chosen",
        r"key\s*=\s*len|(?:max|min|sorted)\([^)]{0,60}len\(|len\([^)]{1,40}\)\s*[<>]=?\s*len\(",
        beside_in_file=PAIRS,
    ),
    Sign(
        "^the two sides of a pair have different prompts|^chosen and rejected contain the whole conversation",
        r"(?:chosen|rejected)\w{0,6}['\"]?\]?\s*[=:]\s*.{0,40}(?:prompt\w{0,4}\s*\+|\{prompt|messages"
        r"|prompt \+|question\w{0,6}\s*\+)",
    ),
    Sign(
        "^only one side of a pair ends with|^an answer of a preference pair contains a BOS",
        r"(?:chosen|rejected)\w{0,6}['\"]?\]?\s*[=:]\s*.{0,60}(?:eos|</s>|<\|im_end|<\|eot|bos)"
        r"|<\|im_end\|>|<\|eot_id\|>",
        beside_in_file=r"chosen",
    ),
    Sign(
        "^prompts and completions are plain strings|^a chat model is trained on rows of plain strings"
        "|^a chat model is trained on plain strings",
        r"['\"]prompt['\"]\]?\s*[=:]\s*(?:f?['\"]|\w{1,10}\[|\w{1,10}\.\w)",
        beside_in_file=PAIRS,
        unless_in_file=r"role['\"]|apply_chat_template",
    ),
    Sign(
        "^KTO's labels are text or numbers|^KTO's desirable and undesirable|^KTO sees answers of one side",
        r"['\"]label['\"]\]?\s*[=:]|\blabel\s*=|\b(?:un)?desirable_weight|kto_\w{0,10}(?:rejected"
        r"|chosen)_weight|kto_tag",
        beside=r"KTO|kto",
    ),
)

_SETTINGS = (
    Sign(
        "^the learning rate is too low|^an optimizer gets a learning rate at which",
        rf"\b(?:learning[_-]rate|lr|rate|LR|optim\.lr){GIVEN}(?:\d(?:\.\d{{1,3}})?[eE]-0?(?:[7-9]|1\d)"
        r"|0\.000000\d{1,6}|1(?:\.0)?[eE]-0?6|0\.000001)\b",
        beside=PREFERS,
    ),
    Sign(
        "^the learning rate is too low|^beta is so large|^a hyperparameter in code has a value",
        rf"\b(?:(?:pref|dpo|rl|kto|simpo|cpo)_)?beta{GIVEN}(?:0?\.[3-9]|[1-9]|0\.00)"
        rf"|\borpo_alpha{GIVEN}0?\.0[0-4]|\b(?:init_)?kl_(?:coef|loss_coef|penalty){GIVEN}(?:0?\.[1-9]|[1-9])",
        beside=PREFERS,
    ),
    Sign(
        "^the adapter is frozen",
        r"PeftModel\w{0,20}\.from_pretrained\((?!.{0,300}is_trainable\s*=\s*True)"
        r"|requires_grad\s*=\s*False|requires_grad_\(False\)|inference_mode['\"]?\s*[=:]\s*(?i:true)"
        r"|grad_norm['\"]?\s*[:=]\s*['\"]?0\.0+\b",
        beside=PREFERS,
    ),
    Sign(
        "^label smoothing of 0.5",
        rf"label_smoothing\w{{0,8}}{GIVEN}0?\.[2-9]|\bcdpo",
    ),
    Sign(
        "^the run has too few optimizer steps",
        rf"Total optimization steps\s*=\s*\d{{1,2}}\b|\bmax[_-]steps{GIVEN}\d{{1,2}}\b"
        rf"|\bmax_samples{GIVEN}\d{{1,3}}\b|select\(range\(\s*\d{{1,3}}\)|train\[:\d{{1,3}}\]",
        beside=PREFERS,
    ),
    Sign(
        "^the run has too few optimizer steps",
        rf"\bgradient[_-]accumulation[_-]steps{GIVEN}(?:3[2-9]|[4-9]\d|\d{{3}})"
        rf"|\bnum_(?:train_)?epochs{GIVEN}1(?:\.0)?\b",
        beside=PREFERS,
    ),
    Sign(
        "^both answers become less likely",
        r"logps/chosen['\"]?\s*[:=]\s*['\"]?-\d{3}|rewards/chosen['\"]?\s*[:=]\s*['\"]?-\d",
    ),
    Sign(
        "^both answers become less likely|^a preference run used a learning rate far above",
        rf"\b(?:learning[_-]rate|lr){GIVEN}(?:[1-9](?:\.\d{{1,3}})?[eE]-0?[1-5]\b|0\.0000[1-9]|0\.000[1-9]"
        r"|0\.00[1-9])",
        beside=r"(?i)\bdpo|\bsimpo|\bipo\b",
        unless=r"rpo_alpha['\"]?\s*[=:]\s*[\d.]*[1-9]|pref_ftx['\"]?\s*[=: ]\s*[\d.]*[1-9]",
    ),
    Sign(
        "^both answers become less likely",
        rf"\b(?:pref_|dpo_|rl_)?beta{GIVEN}0?\.0\d|DPOConfig\(|\brl\s*:\s*dpo|\bstage['\"]?\s*[=: ]\s*['\"]?dpo",
        unless=r"rpo_alpha['\"]?\s*[=:]\s*[\d.]*[1-9]|pref_ftx['\"]?\s*[=: ]\s*[\d.]*[1-9]",
    ),
    Sign(
        "^KTO with one to three rows on a GPU|^KTO's mismatched batch",
        rf"\b(?:per_device_train_batch_size|micro_batch_size|batch_size){GIVEN}[1-3]\b",
        beside=r"KTO|\bkto",
    ),
    Sign(
        "^too many epochs: the margin grows",
        rf"\b(?:num_(?:train_)?epochs|epochs|num-train-epochs){GIVEN}(?:[2-9]|\d\d)(?:\.\d)?\b",
        beside=PREFERS,
    ),
    Sign(
        "^a warm-up is set, but the schedule",
        rf"\blr_scheduler(?:_type)?{GIVEN}constant\b(?!_)",
        beside=r"warmup",
    ),
    Sign(
        "^dropout stays on while|^two passes of the reference over the same batch differ",
        rf"\w{{0,12}}dropout{GIVEN}0?\.\d*[1-9]|disable_dropout{GIVEN}(?i:false)",
        beside=r"(?i)\bdpo|\bkto|ref_model",
    ),
    Sign(
        "^steps are rounded away|^steps of the run's own optimizer leave most weights",
        r"torch_dtype\s*=\s*(?:torch\.bfloat16|['\"]bfloat16)|\bdtype\s*=\s*(?:torch\.bfloat16"
        r"|['\"]bfloat16)|pure_bf16|\.to\(torch\.bfloat16|\.bfloat16\(\)|\bdtype\s*:\s*bf16"
        r"|param_dtype",
        unless=r"LoraConfig|lora_rank|lora_r\b|adapter\s*:|finetuning_type['\"]?\s*[=: ]\s*['\"]?lora"
        r"|peft_config|use_peft|autocast",
        beside=PREFERS,
    ),
)

_REFERENCES = (
    Sign(
        "^in a hand-written loop, policy and reference are the same object|^the reference of a"
        " preference loss is the policy",
        rf"\b\w{{0,10}}ref\w{{0,14}}\s*[=:]\s*{POLICY}\s*[,)]?(?:$|\s)"
        rf"|\b\w{{0,10}}ref\w{{0,10}}\s*=\s*\w{{1,20}}\(\s*{POLICY}\s*,",
    ),
    Sign(
        "^in a hand-written loop, policy and reference are the same object|^the reference of a"
        " preference loss is the policy",
        OWN_LOSS,
        unless_in_file=r"ref\w{0,12}\s*=.{0,60}from_pretrained|deepcopy|disable_adapter|ref_logps|ref_log",
    ),
    Sign(
        "^in a hand-written loop, the margin has the wrong sign",
        rf"\b\w{{0,14}}{REJECTED}\w{{0,14}}(?:\[[^\]]{{1,20}}\])?(?:\.\w{{1,8}}\(\))?\s*-\s*\(?\w{{0,14}}{CHOSEN}\w{{0,14}}"
        r"|\b(?:bad|neg|lose|l|r)\w{0,4}\s*-\s*(?:good|pos|win|w|c)\w{0,4}\b",
    ),
    Sign(
        "^in a hand-written loop, the margin has the wrong sign"
        "|^in a hand-written loop, the loss is made of something else",
        OWN_LOSS,
    ),
    Sign(
        "^in a hand-written loop, the loss is made of something else",
        r"\w{0,6}(?:AdamW?|SGD|Adafactor)\w{0,8}\(\s*\w{0,8}ref|\.detach\(\)|\.item\(\)\s*[-+]"
        r"|no_grad\(\)|inference_mode\(\)|log_softmax\(",
        beside_in_file=OWN_LOSS,
    ),
    Sign(
        "^policy and reference are not the same at the start|^precomputed reference log-probabilities"
        "|^the reference model of a preference|^a preference loss uses the plain base",
        r"precompute_ref\w{0,20}|reference_(?:chosen|rejected)_logps|ref_(?:chosen|rejected)_log"
        rf"|ref_model(?:_name_or_path|_path|_adapters)?{GIVEN}(?!None|none|null)[\w'\".]"
        r"|\bref\w{0,12}\s*=.{0,60}from_pretrained\(|disable_adapter\(",
    ),
    Sign(
        "^policy and reference are not the same at the start|^the reference model of a preference run",
        rf"\badapter_name_or_path{GIVEN}\S",
        beside=r"(?:stage|--stage)['\"]?\s*[=: ]\s*['\"]?(?:dpo|kto)",
        unless=r"create_new_adapter|ref_model",
    ),
    Sign(
        "^preference training starts from the|^the reference model of a preference"
        "|^a preference loss uses the plain base",
        rf"\b(?:model_name_or_path|base_model|model|MODEL|BASE|pretrain|model\.path|--pretrain){GIVEN}{HUB}",
        beside=rf"{PREFERS}.{{0,200}}|\bsft",
        beside_in_file=r"(?i)\bdpo|\bkto|\borpo|chosen",
    ),
    Sign(
        "^a model that has an adapter is wrapped into another one",
        r"get_peft_model\(|peft_config\s*=\s*\w",
        beside_in_file=r"PeftModel\.from_pretrained|AutoPeftModel|load_adapter",
        unless_in_file=r"merge_and_unload",
    ),
)

_SERVED = (
    Sign(
        "^what is compared afterwards is the base",
        rf"from_pretrained\(\s*['\"]{HUB}['\"]|\bFROM\s+\S{{1,60}}|\bvllm serve {HUB}|--model {HUB}"
        rf"|\bLLM\(\s*(?:model\s*=\s*)?['\"]{HUB}",
        unless_in_file=r"PeftModel|load_adapter|lora[-_]modules|enable[-_]lora|LoRARequest|ADAPTER|Trainer"
        r"|\.backward\(",
        beside=PREFERS,
    ),
    Sign(
        "^what is exported, merged or served is the adapter from before|^the client asks the server"
        " for the base",
        r"(?:adapter\w{0,14}|model\w{0,14}|pretrained|FROM|ADAPTER|lora\S{0,10}|--model"
        r"|from_pretrained\(|base_model\w{0,6})\W{1,4}\S{0,60}\bsft",
        unless_in_file=TRAINS_DPO,
    ),
    Sign(
        "^the client asks the server for the base",
        r"completions\.create\(.{0,300}\bmodel\s*=\s*['\"A-Z]|['\"]model['\"]\s*:\s*['\"]"
        r"|\bmodel\s*=\s*['\"][\w./-]{2,80}['\"]",
        unless_in_file=TRAINS_DPO,
        beside=r"/v1|openai|OpenAI|lora[-_]modules",
    ),
    Sign(
        "^the adapter of the DPO was trained on the merged SFT|^a server loads an adapter on another",
        rf"from_pretrained\(\s*(?:['\"]{HUB}|BASE|base)|--model {HUB}|vllm serve {HUB}|--base {HUB}",
        unless_in_file=TRAINS_DPO,
        beside_in_file=PREFERS,
        beside=r"PeftModel|lora[-_]modules|enable[-_]lora|adapter_name_or_path|merge_and_unload"
        r"|LoRARequest|ADAPTER",
    ),
    Sign(
        "^the pairs are trained in another chat template",
        r"\btype\s*:\s*(?:chatml|llama|chat_template)\.\w|\bchat_template\w{0,8}\s*[=:]"
        r"|\btemplate['\"]?\s*[=: ]\s*['\"]?\w|<\|im_start\|>|\[INST\]|### (?:Instruction|Response"
        r"|Human)|\bHuman:|TEMPLATE",
        beside=PREFERS,
    ),
    Sign(
        "^the judge sees the tuned model's answer always in the same place",
        r"(?i)\b(?:answer|assistant|response|model|output|reply)[ _]?\(?A\b|\[\[A\]\]|\[A\]|response_1"
        r"|output_1\b|first (?:answer|response)",
        unless=r"(?i)swap|flip|both orders|random\.(?:random|choice|shuffle)",
        beside=r"(?i)judge|verdict|win_?rate|better|prefer",
    ),
)

_REWARDS = (
    Sign(
        "^the reward pays for the form alone",
        r"def \w{0,20}(?:format|form|tag|length|style|structure|xml)\w{0,20}\(|reward_weights"
        r"|FORMAT\w{0,8}\s*=|<(?:think|reasoning|answer)>",
        beside=r"reward_func|GRPO|grpo|rewards?\b",
    ),
    Sign(
        "^a reward model that learned prompt and answer by the chat template",
        r"(?:\b(?:rm|reward)\w{0,12}|tok\w{0,12})\(\s*(?:\w{0,12}(?:completion|answer|response|text"
        r"|output)|\[|\w\b)",
        beside=r"(?i)reward_?model|RewardTrainer|SequenceClassification|\brm\b",
        unless_in_file=r"apply_chat_template",
    ),
    Sign(
        "^the head of the reward model is not in its adapter",
        r"task_type\s*=\s*.{0,20}CAUSAL_LM|task_type['\"]?\s*:\s*['\"]?CAUSAL_LM|newly initialized"
        r"|LoraConfig\((?!.{0,400}(?:SEQ_CLS|modules_to_save))",
        beside=r"SequenceClassification|RewardTrainer|reward_model|score\.weight",
    ),
    Sign(
        "^several samples of one prompt are requested with greedy decoding|^all answers of a group get the same reward",
        rf"\btemperature{GIVEN}0(?:\.0+)?\b(?!\.)|do_sample{GIVEN}(?i:false)|\b(?:num_generations|rollout\.n"
        rf"|n_samples_per_prompt|group_size){GIVEN}1\b",
        beside=GROUP,
    ),
    Sign(
        "^a pattern of the reward does not match the form",
        r"\bre\.\w{1,10}\((?!.{0,300}(?:DOTALL|re\.S\b|\(\?s)).{0,200}(?:>|\])[^'\"]{0,20}\(?\.[*+]",
        beside=r"reward_func|GRPO|RLOO|grpo",
    ),
    Sign(
        "^all answers of a group get the same reward",
        r"reward_std['\"]?\s*[:=]\s*['\"]?0\.0\b|advantages/max['\"]?\s*[:=]\s*0\.0"
        r"|frac_reward_zero_std['\"]?\s*[:=]\s*['\"]?1\.0|^(?:return|rewards?\w{0,4}\s*="
        r"|\w{1,12}\.append\().{0,30}\b(?:0\.0|1\.0)\b|def \w{0,20}reward\w{0,20}\(",
        beside=GROUP,
    ),
    Sign(
        "^generated answers are always cut off|^all answers of a group get the same reward",
        rf"\b(?:max_completion_length|max_response_length|generate_max_len|max_new_tokens){GIVEN}{SHORT}"
        r"|clipped_ratio['\"]?\s*[:=]\s*['\"]?(?:1\.0|0\.[5-9])",
        beside=GROUP,
    ),
)

SIGNS: tuple[Sign, ...] = (*_PAIRS, *_SETTINGS, *_REFERENCES, *_SERVED, *_REWARDS)
