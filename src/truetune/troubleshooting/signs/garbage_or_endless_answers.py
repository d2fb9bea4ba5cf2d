"""Signs of what causes garbage in answers, answers that never stop, and answers that are good here and bad there."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign_as_statement_patterns import SET, Sign

# `a=1`, `a: float = 1`, `"a": 1`, `--a 1`, `"--a", type=float, default=1`
GIVEN = r"['\"]?(?:\s*:\s*\w+\s*=|,\s*(?:type=\w+,\s*)?default=|\s*[=: ])\s*['\"]?"
TRUE, FALSE = r"(?:[Tt]rue|1\b|yes)", r"(?:[Ff]alse|0\b|no\b)"
TOKENIZE = r"(?:\b|\.)(?:tok|tk|tokeni[sz]er\w*|tok_\w+|processor)\("
LOAD_TOKENIZER = r"Tokenizer\w*\.from_pretrained\("
LOAD_MODEL = r"(?:Model\w*|LM|For[A-Z]\w+)\.from_pretrained\("
LOAD_ADAPTER = r"\bPeft\w*\.from_pretrained\(|\.load_adapter\(|LoRARequest\("
SERVE_ADAPTER = r"--lora-modules|enable[-_]lora|^ADAPTER\s+(?!=)|adapter_name_or_path|\blora_model_dir\b|--lora\b"
ADDS_TOKENS = (
    r"\.add_tokens\(|\.add_special_tokens\((?!\s*\{\s*['\"]pad_token['\"]\s*:[^,{}]{1,60}\}\s*\))"
    r"|additional_special_tokens(?!['\"]\s*:\s*\[?\s*$)|setup_chat_format\(|new_special_tokens|^tokens:"
)
LORA = r"[Ll][Oo][Rr][Aa]|get_peft_model"
TRAINS = r"Trainer\(|\.backward\(|training_step|\.fit\(|\bdo_train\b"
TRANSFORMERS_ASKS = r"\.generate\(|\bpipeline\("
LOCAL_ASKS = rf"{TRANSFORMERS_ASKS}|\bLLM\(|\bLlama\("
COMPLETIONS = (
    r"(?<!chat\.)\bcompletions\.create\(|/v1/completions|create_completion\(|/api/generate"
    r"|ollama\.generate\(|\.text_generation\("
)
CHATS = r"chat\.completions|/v1/chat|create_chat_completion\(|/api/chat|ollama\.chat\(|chat_completion\(|\.chat\("
SERVER = (
    r"vllm serve|vllm\.entrypoints|api_server|llama-server|launch_server"
    r"|text-generation-(?:launcher|inference)|vllm/vllm-openai"
)
ASKS = rf"{LOCAL_ASKS}|{COMPLETIONS}|{CHATS}"
ASKS_OR_SERVES = rf"{ASKS}|{SERVER}"
MARKS_OF_TURNS = (
    r"<\|im_start\|>|<\|start_header_id\|>|\[INST\]|<start_of_turn>|<\|(?:user|assistant|system)\|>"
)
MARKS_BY_HAND = (
    rf"###\s?(?:Instruction|Response|Question|Answer|Input|Human|Assistant)|{MARKS_OF_TURNS}"
)
# EOS that is put behind a text or its ids; the one that generation is told says nothing of the rows.
APPENDED_STOP = (
    r"(?:\+|\{|append\(|\[|,)\s*\[?\s*(?:[\w.]{0,40}[._])?(?:eos|EOS|eot"
    r"|EOT)\w*\s*[\]}),+]|(?:\+=?|\bjoin\b)\s*[\w.]*(?:eos|EOS|eot)\w*"
    r"|</s>|<\|im_end\|>|<\|endoftext\|>|<\|eot_id\|>|<end_of_turn>|<\|end_of_text\|>|add_eos|append_eos"
)
PAD = r"pad(?:_token|_id|_token_id|ding)?\w*"
PAD_IS_EOS = (
    r"\bpad_token(?:_id)?['\"]?\]?\s*[=:]\s*[\w.]{0,60}\beos_token"
    r"|\bpad_token['\"]?\s*[=:]\s*['\"]?(?:</s>|<\|im_end\|>|<\|eot_id\|>|<\|endoftext\|>|<\|end_of_text\|>)"
)
LANGUAGE_MODELLING = r"DataCollatorForLanguageModeling\("
COPIED_LABELS = (
    r"labels['\"]?\]?\s*[:=]\s*[^=]{0,60}(?:ids|input\w*)['\"]?\]?(?:\.(?:copy|clone)\(\)|\[:\])?\s*[,})]*$"
    r"|labels['\"]?\]?\s*[:=]\s*(?:list|copy\.deepcopy|torch\.tensor)\([^()]{0,40}ids['\"]?\]?\)"
)
FULL_CAUSAL = r"\.tril|\.triu|is_causal|\bq\w*\s*>=\s*k|causal_mask|\bcausal\b|create_causal"
SHIFTED_LOGITS = r":-1|\[\.\.\.,\s*1:|shift"
SEQ2SEQ = r"Seq2Seq|T5|ForConditionalGeneration|[Bb]art|encoder"
MODELFILE_FROM = r"^FROM\s+(?:\.{0,2}/|\S+\.gguf|hf\.co/|[\w.-]+(?::[\w.-]*\d+b\S*)?\s*$)"
# 1e-3 is ten times what adapters are trained with, and a hundred times what full models are.
DESTROYING_RATE = r"(?:\d(?:\.\d+)?[eE]-0?[123]\b|0?\.0{0,2}[1-9]\d*\b(?![eE]))"
# What destroys a full model in its warm-up, and is usual for an adapter.
RATE_OF_ADAPTERS = r"(?:\d(?:\.\d+)?[eE]-0?4\b|0?\.000[1-9]\d*\b(?![eE]))"
RATE = r"(?:\blearning[_-]?rate|LEARNING_RATE|\b(?:max_|peak_)?lr|\bLR)"
HISTORY = r"(?:history|messages|msgs|turns|chat|conversation|conv)"
QUESTION = r"(?:question|prompt|instruction|query|input|customer|user|ticket)"
ANSWER = r"(?:answer|response|output|reply|completion|agent|assistant|target)"
COARSE = r"\b[qQ][2-5]_(?:[kK](?:_[sSmMlL])?|[01])\b|\biq[1-4]_|quantization_method|llama-quantize|quantize_model"
QUANTIZED_LOAD = (
    rf"load_in_[48]bit{SET}{TRUE}|BitsAndBytesConfig\(|quantization_bit|save_method{SET}merged_4bit"
)
KEPT_ROWS = (
    r"load_from_disk\(|dataset_prepared_path|tokenized_path|skip_prepare_dataset"
    r"|pickle\.load\(|torch\.load\([^)]{0,60}(?:data|cache|ids|train|tok)|np\.(?:load|memmap)\("
    r"|read_parquet\([^)]{0,60}(?:tok|cache|ids|prep)|train_on_disk"
)
KEPT_UNLESS_NEW = (
    r"^(?:el)?if\b.{0,80}(?:exists|is_file|is_dir|isdir|isfile)\(.{0,60}"
    rf"|{KEPT_ROWS}|cache_file_names?{SET}|overwrite_cache{SET}{FALSE}"
)
FLOAT16 = (
    rf"\b(?:torch_)?dtype{GIVEN}(?:torch\.)?(?:float16|half)\b|\.half\(\)|\bfp16{SET}{TRUE}|--fp16\b"
    rf"|--outtype\s+f16\b|precision{SET}16(?!\d|-true-bf)\b|Casting torch\.bfloat16 to torch\.float16"
)

_PROMPT_SIGNS = (
    Sign(
        r"^apply_chat_template was called without",
        r"apply_chat_template\((?!.*add_generation_prompt\s*=\s*True).*\)",
        beside_in_file=ASKS,
        unless_in_file=TRAINS,
    ),
    Sign(
        r"^apply_chat_template was called without",
        r"apply_chat_template\((?!.*add_generation_prompt\s*=\s*True).*\[:-1\].*\)",
        beside_in_file=ASKS,
    ),
    Sign(
        r"^(?:the client sends|a request sends) (?:the|a) bare question|^the prompt differs from the one"
        r"|^the server builds another prompt",
        COMPLETIONS,
        beside=r"messages|chat_template|conversations|[-_][Ii]nstruct\b|template:",
        unless_in_file=r"apply_chat_template",
    ),
    Sign(
        r"^a chat model is asked with a bare text|^the prompt differs from the one|^the prompt in serving is not"
        r"|^the client sends the bare question|^the serving prompt is not",
        rf"{TOKENIZE}(?!.*(?:labels|text_target)).*return_tensors|\bllm\.generate\(|\bpipe\w*\(|\bgenerator\(",
        beside_in_file=LOCAL_ASKS,
        unless_in_file=rf"add_generation_prompt\s*=\s*True|{SEQ2SEQ}|{CHATS}",
        beside=r"messages|chat_template|conversations|[-_][Ii]nstruct\b|[-_][Cc]hat\b|-it\b|template:",
    ),
    Sign(
        r"^the prompt differs from the one|^the prompt in serving is not|^the server builds another prompt",
        MARKS_BY_HAND,
        beside_in_file=ASKS,
        unless_in_file=TRAINS,
    ),
    Sign(
        r"^the prompt differs from the one|^the server builds another prompt|^trained with one chat template"
        r"|^a server uses the chat template|^the server builds another prompt",
        r"--chat[-_]template\b|--chat-template|\bchat_template(?:_path)?\s*=(?!=)\s*(?:open|Path|['\"f]|[A-Z])",
        beside=ASKS_OR_SERVES,
    ),
    Sign(
        r"^the training rows begin with a system prompt",
        rf"\b{HISTORY}\[\s*-\s*\w+(?:\s*\*\s*\d)?\s*:\]",
        beside_in_file=ASKS,
    ),
    Sign(
        r"^the training rows begin with a system prompt|^the prompt differs from the one"
        r"|^the server builds another prompt|^the template adds a system prompt",
        r"['\"]role['\"]\s*:\s*['\"]user['\"]|role\s*=\s*['\"]user['\"]",
        beside_in_file=ASKS,
        unless_in_file=rf"['\"]system['\"]|SYSTEM|system_prompt|{TRAINS}",
        beside=r"['\"]?role['\"]?\s*[:=]\s*['\"]system['\"]|default_system|system_prompt|SYSTEM",
    ),
    Sign(
        r"^the model is trained with reasoning off",
        rf"enable_thinking|/no_?think\b|reasoning[-_]parser|reasoning_effort|thinking_budget{SET}",
    ),
    Sign(
        r"^text rendered by the chat template is tokenized|^rows that were already rendered",
        rf"{TOKENIZE}(?!.*(?:add_special_tokens\s*=\s*False"
        rf"|apply_chat_template)).*(?:text|prompt|render|chat|formatted)\w*.*\)",
        beside_in_file=r"apply_chat_template\(.*tokenize\s*=\s*False",
        unless_in_file=r"add_special_tokens\s*=\s*False|bos_token|removeprefix",
    ),
    Sign(
        r"^the result of `apply_chat_template` is taken for a list",
        r"apply_chat_template\((?!.*(?:tokenize\s*=\s*False|return_dict|return_tensors)).*\)",
        unless_in_file=r"\[['\"]input_ids['\"]\]\s*$",
    ),
    Sign(
        r"^a prompt reaches the model with a placeholder",
        rf"(?<![fF])(?:['\"]|\"\"\")[^'\"]{{0,300}}\{{{QUESTION}\w*\}}",
        beside_in_file=ASKS,
        unless_in_file=r"\.format\(|\.format_map\(|\.replace\(|PromptTemplate|Template\(|\.substitute\(",
    ),
    Sign(
        r"^the tokenizer appends EOS to the prompts",
        rf"add_eos_token{GIVEN}{TRUE}",
    ),
    Sign(
        r"^a prompt in Gemma's chat format",
        r"add_special_tokens\s*=\s*False",
        beside_in_file=r"<start_of_turn>",
        unless_in_file=r"<bos>|bos_token",
    ),
    Sign(
        r"^a multilingual translation model",
        r"nllb|mbart|m2m100|[Mm]2M100|MBart",
        beside=TRANSFORMERS_ASKS,
        unless=r"forced_bos_token_id",
    ),
)

_ROW_SIGNS = (
    Sign(
        r"^the answers were not what was supervised",
        rf"\btrain_on_(?:inputs?|prompt){SET}{TRUE}|(?:completion_only_loss|assistant_only_loss){SET}False"
        rf"|{COPIED_LABELS}",
        unless_in_file=r"-\s?100",
    ),
    Sign(
        r"^the answers were not what was supervised|^labels are masked by hand, and a|^labels are made with care"
        r"|^the collator gives labels to tokens",
        LANGUAGE_MODELLING,
        beside=r"-\s?100|messages|instruction|question|prompt",
    ),
    Sign(
        r"^the answers were not what was supervised",
        r"dataset_text_field|formatting_func",
        beside=rf"\b{ANSWER}\b",
        unless=r"completion_only|assistant_only|train_on_responses_only|-100",
    ),
    Sign(
        r"^the roles are exchanged",
        rf"role['\"]?\s*[:=]\s*['\"](?:assistant"
        rf"|model)['\"],\s*['\"]?content['\"]?\s*[:=][^,}}]{{0,60}}['\"._]{QUESTION}"
        rf"|role['\"]?\s*[:=]\s*['\"]user['\"],\s*['\"]?content['\"]?\s*[:=][^,}}]{{0,60}}['\"._]{ANSWER}\b"
        rf"|['\"]?\b(?:user|human|prompt|query|instruction)(?:_tag)?['\"]?\s*:\s*\[?['\"]?{ANSWER}\b"
        rf"|['\"]?\b(?:assistant|gpt|response|output|completion"
        rf"|answer)(?:_tag)?['\"]?\s*:\s*\[?['\"]?(?:user|human|customer|question|prompt)\b"
        rf"|field_(?:instruction|input){SET}{ANSWER}|field_output{SET}{QUESTION}",
    ),
    Sign(
        r"^the roles are exchanged",
        r"['\"](?:user|human|assistant)['\"]\s+if\s.{0,60}(?:%\s*2|==|\bin\b|is_)",
        beside=r"role|from",
    ),
    Sign(
        r"^labels are shifted twice|^labels of tokenized rows are not the ids",
        r"labels?\w*['\"]?\]?\s*[:=]\s*.{0,60}\[(?:(?:\.\.\.|:),\s*)?1:\]|labels?\w*['\"]?\]?\s*=\s*torch\.roll\("
        r"|labels?\w*\[(?:\.\.\.|:),\s*:-1\]\s*=\s*.{0,60}1:\]"
        r"|\b(?:y|targets?)\s*=\s*.{0,40}\[(?:(?:\.\.\.|:),\s*)?1:\]",
        beside_in_file=r"labels\s*=|['\"]labels['\"]",
        unless_in_file=r"[Ll]ogits?\w*\[(?:\.\.\.|:),\s*:-1|cross_entropy\(|CrossEntropyLoss",
    ),
    Sign(
        r"^a custom loss of a causal model compares",
        r"cross_entropy\(|CrossEntropyLoss\(|nll_loss\(|\.gather\(",
        unless_in_file=rf"{SHIFTED_LOGITS}|num_labels|SequenceClassification|num_classes|chosen",
        beside=r"CausalLM|LMHead",
    ),
    Sign(
        r"^a loss is given scores on another scale",
        r"softmax\(",
        beside_in_file=r"cross_entropy\(|CrossEntropyLoss\(|nll_loss\(|NLLLoss\(|BCE",
        unless_in_file=r"log_softmax|kl_div|chosen|(?:def|class)\s+\w*[Aa]ttention",
    ),
    Sign(
        r"^a hand-written attention mask has no causal part|^in a packed row, one document"
        r"|^several rows share a sequence",
        r"(?:None\]|unsqueeze\(-?\d\))\s*==\s*\w+.{0,40}(?:None|unsqueeze)|block_diag\(|create_block_mask\("
        r"|attention_mask['\"]?\]?\s*[:=]\s*.{0,40}torch\.(?:ones"
        r"|zeros)\([^)]{0,40},[^)]{0,40},|def \w*mask_mod\w*\(",
        unless_in_file=FULL_CAUSAL,
    ),
    Sign(
        r"^several rows share a sequence|^in a packed sequence, the first token"
        r"|^in a packed row, one document|^rows contain several conversations",
        rf"\b(?:sample_|eval_)?packing{SET}{TRUE}|\bneat_packing{SET}{FALSE}|group_texts",
    ),
    Sign(
        r"^labels are a plain copy of padded|^padding stored in tokenized rows",
        COPIED_LABELS,
        unless_in_file=r"-\s?100",
        beside=r"padding\s*=\s*(?:True|['\"](?:max_length|longest))|\.pad\(|pad_sequence",
    ),
    Sign(
        r"^labels are padded with the pad token",
        r"label\w*['\"]?\]?\s*[=:].{0,40}pad_sequence\((?!.*-\s?100)|label\w*.{0,60}\+\s*\[[\w.]*pad_(?:token_)?id\]",
    ),
    Sign(
        r"^the label mask is inverted|^labels of tokenized rows include the prompts",
        rf"-100\]\s*\*\s*(?:len\(\w*{ANSWER}|\(\s*len\(\w+\)\s*-)"
        r"|\[\w*(?:len|start|n|cut)\w*:\]\s*=\s*-100",
    ),
    Sign(
        r"^labels are counted off from the end|^rows are padded on the left",
        r"labels?\w*\[(?::,\s*)?:?-\s*len\(|padding_side\s*=\s*['\"]left",
        beside=r"-\s?100",
        unless=TRANSFORMERS_ASKS,
    ),
    Sign(
        r"^a large part of the training answers is in another language|^questions in one language are answered in two",
        r"\b\w*(?:_zh|zh_|-zh|zh-|_cn)\b|alpaca\w*zh|\bbelle|translat(?:ed|ion|or)|MarianMT|opus-mt|deepl",
    ),
    Sign(
        r"^an instruct model was trained on raw texts",
        rf"\bstage{SET}pt\b|\btype:\s*completion\b|pretraining_dataset"
        rf"|{TOKENIZE}.{{0,20}}\[['\"](?:text|content|body|article)['\"]\]"
        rf"|dataset_text_field{SET}(?:text|content|body|article)",
        beside=r"[-_][Ii]nstruct\b|[-_][Cc]hat\b|-it\b",
        unless=r"apply_chat_template|['\"]role['\"]",
    ),
    Sign(
        r"^the texts were taken from PDF files",
        r"[Pp][Dd][Ff](?:plumber|miner|2|Reader)|PyPDF|\bfitz\b|pymupdf|pdftotext|extract_text\(|\.pdf\b",
    ),
    Sign(
        r"^the rows hold it|^a script reads a UTF-8 file",
        r"encoding(?:_errors)?\s*=\s*['\"](?:latin|cp125|iso-?8859"
        r"|windows-125|ascii)|errors\s*=\s*['\"](?:ignore|replace)"
        r"|Ã[©¨¤¶¼ª´§]|â€[™œ]",
    ),
    Sign(
        r"^the rows hold it|^answers are encoded text",
        r"&(?:nbsp|#39|quot|amp);|<br ?/?>|<p[ >]|BeautifulSoup|read_html|body_html|html\b.{0,20}[=\]]|b64|base64"
        r"|replace\(['\"]\\n['\"],\s*r?['\"]\\\\",
        unless=r"html\.unescape|get_text\(|b64decode",
    ),
    Sign(
        r"^the rows hold it",
        MARKS_OF_TURNS,
        beside_in_file=r"['\"](?:content|value|output|conversations|messages)['\"]",
        unless_in_file=ASKS,
    ),
    Sign(
        r"^answers are paired with the questions of other rows",
        rf"concat\(.*axis\s*=\s*1|\bzip\((?![^)]{{0,80}}\[)[^)]{{0,60}}{QUESTION}s?\b.{{0,60}}{ANSWER}"
        rf"|\]\.shift\(|sort_values\(.*reset_index\(",
        unless_in_file=ASKS,
    ),
    Sign(
        r"^the answers of training rows are cleaned|^answers are bare words",
        r"\.lower\(\)|string\.punctuation|stopwords|re\.sub\(\s*r?['\"]\[\^",
        beside_in_file=r"\.jsonl|to_json|save_to_disk|['\"]messages['\"]|['\"]output['\"]|['\"]completion['\"]",
        unless_in_file=r"accuracy|exact_match|f1|score|rouge|argmax",
    ),
    Sign(
        r"^a script writes answers that should be JSON as Python|^the template prints a list or an object",
        r"['\"](?:content|output|completion|response|answer)['\"]\s*:\s*(?:str|repr)\("
        r"|f['\"][^'\"]{0,60}\{\w+\[['\"]\w*(?:tags|fields|items|entities|labels|json)",
    ),
    Sign(
        r"^rows are transformed, but the result is discarded",
        r"^\w+(?:\[[^\]]{1,30}\])?\.(?:map|filter|select|remove_columns|rename_column"
        r"|train_test_split|dropna|drop_duplicates)\((?!.*\)\.(?:save|to|push)_)",
    ),
    Sign(
        r"^a function that is written for one row is mapped with",
        r"\.map\(.*batched\s*=\s*True",
        beside_in_file=r"f['\"][^'\"]{0,200}\{\w+\[",
    ),
    Sign(
        r"^(?:prompts and completions are plain strings|a chat model is trained on rows)"
        r"|^a chat model is trained on plain strings",
        r"['\"]prompt['\"]\s*:\s*(?!\[)[^}\[]{0,120}['\"](?:completion|chosen)['\"]\s*:\s*(?!\[)",
        beside=r"[-_][Ii]nstruct\b|[-_][Cc]hat\b|-it\b",
    ),
    Sign(
        r"^answers break off: unclosed reasoning",
        rf"\bmax_(?:new_)?tokens{GIVEN}\d{{1,4}}\b|cutoff_len|sequence_len|(?<!/)\bmax_(?:seq_)?length{GIVEN}\d+",
        beside=r"<think>|thinking|\btraces?\b|R1-Distill|QwQ",
    ),
)

_STOP_SIGNS = (
    Sign(
        r"^the stop token is masked|^the pad token is EOS|^the settings use the stop token|stage pt masks every EOS",
        rf"(?:==|!=|\.eq\(|\.ne\()\s*[\w.\[\]'\"]{{0,40}}{PAD}\b.*-\s?100"
        rf"|-\s?100.*(?:==|!=|\.eq\(|\.ne\()\s*[\w.]{{0,40}}{PAD}\b"
        rf"|labels?\w*\[[^\]]{{0,60}}(?:==|!=)\s*[\w.]{{0,40}}{PAD}\]|ignore_index\s*=\s*[\w.]{{0,40}}{PAD}",
        beside=PAD_IS_EOS,
    ),
    Sign(
        r"^the stop token is masked|^the pad token is EOS|^the settings use the stop token|stage pt masks every EOS",
        PAD_IS_EOS,
        beside=rf"{LANGUAGE_MODELLING}|DataCollatorForCompletionOnlyLM|stage{SET}pt\b",
    ),
    Sign(
        r"^the stop token is masked|^the settings use the stop token",
        PAD_IS_EOS,
        beside_in_file=TRAINS,
        unless_in_file=r"-\s?100|Classif|SFTTrainer|DPO|GRPO",
    ),
    Sign(
        r"^no stop token is in the rows|^training rows are built from prompts|^plain text rows end without"
        r"|^only one side of a pair ends with",
        rf"\b(?:text|sample|formatted|full|prompt|example|s|line)(?:_\w{{0,30}})?['\"]?\]?\s?(?:=|:|\+=)\s?\(?[rf]{{0,2}}['\"]"
        rf"[^{{}}]{{0,200}}(?:\{{[^{{}}]{{0,60}}\}}[^{{}}]{{0,200}}){{0,3}}\{{[^{{}}]{{0,60}}{ANSWER}"
        rf"|f['\"]{{1,3}}(?:###|<\w+>|Question|User|Human|Q:)[^{{}}]{{0,100}}"
        rf"(?:\{{[^{{}}]{{0,60}}\}}[^{{}}]{{0,200}}){{0,3}}\{{[^{{}}]{{0,60}}{ANSWER}",
        beside=TRAINS,
        unless_in_file=APPENDED_STOP,
    ),
    Sign(
        r"^no stop token is in the rows|^training rows are built from prompts|^stop tokens of tokenized rows",
        rf"{TOKENIZE}.{{0,40}}{ANSWER}?.*add_special_tokens\s*=\s*False",
        beside_in_file=r"-\s?100",
        unless_in_file=rf"{APPENDED_STOP}|apply_chat_template",
    ),
    Sign(
        r"^no stop token is in the rows|^plain text rows end without|^Axolotl's settings leave the stop"
        r"|^training rows are built from prompts",
        rf"add_eos_token{GIVEN}{FALSE}|train_on_eo[st]{SET}none|efficient_eos{SET}{TRUE}",
    ),
    Sign(
        r"^texts contain several turns of two speakers|^a few turns of dialogue are one text",
        r"['\"]\\n['\"]\.join\(|\+=\s*f['\"].*(?:role|speaker|User|Assistant)",
        beside_in_file=r"eos_token|</s>|<\|endoftext\|>",
    ),
    Sign(
        r"^most rows lose their end|^training rows are too long|^tokenized rows are cut off"
        r"|^generated answers are always cut off|^examples longer than",
        # 512 tokens are some 350 words. Longer limits are those of most projects.
        rf"(?<!/)\b(?:max_(?:seq(?:uence)?_)?len(?:gth)?|cutoff_len"
        rf"|sequence_len|block_size|MAX_LEN(?:GTH)?|max_tokens_per_row)"
        rf"{GIVEN}(?:[1-4]\d{{1,2}}|512|\d{{2}})\b(?![.\d])",
        beside=TRAINS,
    ),
    Sign(
        r"^most rows lose their end",
        r"\bSFTConfig\((?!.*max_(?:seq_)?length).*\)",
        unless=r"max_(?:seq_)?length\s*=|max_length",
    ),
    Sign(
        r"^stopping is switched off|^the server stops at another token|^it stops at other tokens",
        rf"ignore[-_]eos{GIVEN}{TRUE}|--ignore-eos\b"
        rf"|ignore[-_]eos['\"]?\s*[:=]\s*{TRUE}|\bmin_(?:new_)?tokens{GIVEN}[1-9]"
        rf"|(?<!/)\bmin_length{GIVEN}[1-9]\d\b(?!\.)|logit_bias"
        rf"|eos_token_id{GIVEN}(?:None|-1)\b|bad_words_ids|suppress_tokens",
    ),
    Sign(
        r"^the server stops at another token|^it stops at other tokens|^the server does not end answers"
        r"|^generation with the chat template does not stop|^a chat server does not stop"
        r"|^the template ends turns with another token",
        rf"(?<!['\"])\beos_token_id{GIVEN}\S|\bstop_token_ids|^PARAMETER stop\b|\bstop{GIVEN}\[|\bterminators\b",
        beside=ASKS_OR_SERVES,
        unless_in_file=TRAINS,
    ),
    Sign(
        r"^generation_config.json lacks the stop token|^the server stops at another token|^it stops at other tokens",
        r"^['\"]eos_token_id['\"]\s*:",
        beside_in_file=r"transformers_version",
        beside=SERVER,
    ),
    Sign(
        r"^turn markers are added as plain tokens",
        rf"\.add_tokens\((?!.*special_tokens\s*=\s*True).*(?:{MARKS_OF_TURNS}|\w+)",
    ),
)

_WEIGHT_SIGNS = (
    Sign(
        r"^the weights are not those|^weights are missing in what"
        r"|^the tensor names in the adapter file|^weights are saved under"
        r"|^the saved and reloaded model",
        r"^(?!.*(?:score|classif|Classif|pooler)).*newly initialized|Missing key\(s\)"
        r"|missing keys|strict\s*=\s*False|ignore_mismatched_sizes\s*=\s*True"
        r"|Found missing adapter keys",
    ),
    Sign(
        r"^weights are missing in what|^tensors have other shapes|^the weights are not those",
        rf"stage3_gather_16bit_weights_on_model_save{SET}false|fsdp_state_dict_type{SET}SHARDED|SHARDED_STATE_DICT"
        r"|_orig_mod|\.module\.state_dict\(",
    ),
    Sign(
        r"^weights are missing in what|^the weights are not those",
        r"tie_word_embeddings['\"]?\s*[:=]\s*[Ff]alse",
        # Small models share the head with the embedding; large ones have two, and are right to say so.
        beside_in_file=r"hidden_size['\"]\s*:\s*(?:[1-9]\d{2}|[12]\d{3}|3072)\b",
    ),
    Sign(
        r"^weights are missing in what|^the weights are not those|^a trained head is not in the file",
        r"(?<!Peft)(?:AutoModel\w*|LM|For[A-Z]\w+)\.from_pretrained\([^)]{0,60}(?:adapter|lora|checkpoint-|ckpt)"
        r"|load_state_dict\(torch\.load|torch\.save\(\w+(?:\.module)?\.state_dict\(",
    ),
    Sign(
        r"^the weights are not those|^an adapter is loaded on another"
        r"|^Ollama loads the adapter on"
        r"|^a server loads an adapter on another",
        rf"{LOAD_ADAPTER}|--lora-modules|^ADAPTER\s+(?!=)|adapter_name_or_path",
        beside=rf"{LORA}",
    ),
    Sign(
        r"^Ollama loads the adapter on",
        r"^FROM\s+\S",
        beside_in_file=r"^ADAPTER\s+(?!=)",
    ),
    Sign(
        r"^the model that merge_and_unload returns is thrown away",
        r"^[\w.]+\.merge_and_unload\(",
    ),
    Sign(
        r"^(?:a script puts an adapter on weights that it was merged into|a server loads an adapter on weights)",
        rf"(?:{LOAD_ADAPTER}|--lora-modules).*|\bvllm serve\s\S*merged\S*.*--lora-modules",
        beside=r"merge_and_unload|save_pretrained_merged|export_dir|merged",
        unless_in_file=r"merge_and_unload",
    ),
    Sign(
        r"^a model that has an adapter is wrapped",
        r"get_peft_model\(|peft_config\s*=",
        beside_in_file=rf"{LOAD_ADAPTER}",
    ),
    Sign(
        r"^a classifier's LoRA config has the task type",
        r"CAUSAL_LM",
        beside_in_file=r"SequenceClassification|TokenClassification|num_labels",
    ),
    Sign(
        r"^the learning rate destroyed the weights|^a preference run used a learning rate",
        rf"{RATE}{GIVEN}{DESTROYING_RATE}",
    ),
    Sign(
        r"^the learning rate destroyed the weights",
        rf"{RATE}{GIVEN}{RATE_OF_ADAPTERS}",
        unless=rf"{LORA}|[Aa]dapter|[Pp]rompt[Tt]uning|[Pp]refix[Tt]uning",
    ),
    Sign(
        r"^the learning rate destroyed the weights",
        # Sound text has a loss of 1 to 4; from 6 on a model knows hardly more than how often words are.
        rf"\b(?:train_|train/)?loss{GIVEN}(?:[6-9]|\d\d)\.\d",
        beside=rf"\b(?:train_|train/)?loss{GIVEN}[0-2]\.\d",
    ),
    Sign(
        r"^too many epochs on few rows|^the run trained on only a few of the rows",
        rf"\b(?:num_(?:train_)?epochs|max_epochs|epochs|EPOCHS|n_epochs){GIVEN}(?:[1-9]\d)\b",
    ),
    Sign(
        r"^marks of the chat template were never trained"
        r"|^the embedding rows of new tokens were not trained|^a new token got an unused row",
        ADDS_TOKENS,
        beside=LORA,
        unless=r"modules_to_save.{0,60}(?:embed|lm_head)|trainable_token_indices['\"]?\s*[=:](?!\s*(?:null|None))"
        r"|additional_target|lora_modules_to_save",
    ),
    Sign(
        r"^marks of the chat template were never trained",
        r"[Ll]lama-?3(?:\.\d)?-\d{1,3}[Bb](?![-\w.]*(?:[Ii]nstruct|Chat|chat|-it))",
        beside=r"chat_template|messages|<\|eot_id\|>|template:\s*llama3|llama-3",
    ),
    Sign(
        r"^Axolotl's chat template writes turn",
        r"^chat_template:\s*(?!tokenizer_default)\w+",
        unless=r"^\s*tokens:|special_tokens:\s*$",
    ),
    Sign(
        r"^tokens that the training added are not in the tokenizer that asks",
        LOAD_TOKENIZER,
        beside=ADDS_TOKENS,
        beside_in_file=ASKS,
        unless_in_file=rf"{ADDS_TOKENS}|{TRAINS}",
    ),
    Sign(
        r"^tokens are added to the tokenizer, but",
        ADDS_TOKENS,
        unless=r"resize_token_embeddings|setup_chat_format|^tokens:|new_special_tokens",
    ),
    Sign(
        r"^the embedding is resized to the tokenizer's length",
        r"resize_token_embeddings\(",
        unless=ADDS_TOKENS,
    ),
    Sign(
        r"^the tokenizer is not the model|^a server uses the tokenizer|^model and tokenizer belong to families"
        r"|^tokens in the data have ids",
        rf"--tokenizer(?:_name(?:_or_path)?)?[ =]\S"
        rf"|\btokenizer(?:_name(?:_or_path)?|_config|_path)?{SET}[\w.-]+/[\w.-]+"
        r"|(?:TOKENIZER|TOK)\w*\s*=\s*['\"][\w.-]+/",
    ),
    Sign(
        r"^the tokenizer is not the model|^model and tokenizer belong to families",
        rf"{LOAD_TOKENIZER}\s*['\"]",
        beside_in_file=rf"{LOAD_MODEL}\s*(?!['\"])\w",
    ),
    Sign(
        r"^a fine-tuning run trains a model whose weights are random|^a vLLM server runs with random"
        r"|^a fine-tuning job starts from",
        rf"load[-_]format{SET}dummy|\.from_config\(|\b(?:GPT2LMHeadModel"
        rf"|LlamaForCausalLM|\w+ForCausalLM)\(\s*\w*[Cc]onfig"
        rf"|train_from_scratch{SET}{TRUE}|--config_name|config_overrides|random_init_weights{SET}{TRUE}",
    ),
    Sign(
        r"^activations overflow in float16",
        FLOAT16,
        beside=r"[Gg]emma|[Tt]5|[Qq]wen|Llama-?3|[Mm]istral|bfloat16|Phi|phi",
        unless_in_file=rf"load_in_4bit{SET}{TRUE}|GradScaler|is_bf16_supported|\bbf16{SET}{TRUE}",
    ),
    Sign(
        r"^a model generates in float16|^a server casts a bfloat16 model",
        FLOAT16,
        beside_in_file=ASKS_OR_SERVES,
        unless_in_file=rf"load_in_4bit{SET}{TRUE}|{TRAINS}",
    ),
    Sign(
        r"^a server casts a bfloat16 model|^activations overflow in float16",
        r"Casting torch\.bfloat16 to torch\.float16|--dtype[ =](?:half|float16)",
    ),
    Sign(
        r"^the converted model computes NaN",
        r"--outtype[ =]f16\b|outtype\s*=\s*['\"]f16|quantization_method\s*=\s*\[?['\"]f16",
    ),
    Sign(
        r"^the GGUF is quantized too coarsely|^the adapter was merged into 4-bit",
        COARSE,
    ),
    Sign(
        r"^the adapter was merged into 4-bit|^the adapter's effect is lost in the merge",
        rf"merge_and_unload\(|merge_peft|export_dir|save_pretrained_merged\(|{QUANTIZED_LOAD}",
        beside_in_file=QUANTIZED_LOAD,
        unless_in_file=TRAINS,
    ),
    Sign(
        r"^the adapter's effect is lost in the merge|^a pipeline merges or quantizes a model",
        r"merge_and_unload\(|merge[-_]lora|export_dir|save_pretrained_merged\(|llamafactory-cli export",
    ),
    Sign(
        r"^rendered chats are passed to TRL as text",
        r"\bapply_chat_template\(.{0,200}\btokenize\s*=\s*False\b",
        beside=r"\bSFTTrainer\b",
    ),
    Sign(
        r"^rows begin without BOS",
        rf"\badd_bos_token{GIVEN}[Ff]alse\b|\badd_special_tokens{GIVEN}False\b",
    ),
    Sign(
        r"^tags that programs look for in answers are special",
        r"\b(?:add_special_tokens|additional_special_tokens)\b.{0,80}</?(?:think|tool_call|answer|reasoning)>",
    ),
    Sign(
        r"^prompts contain the word that a program prints",
        r"\.astype\(str\)|\bstr\(\s*(?:r|row|ex|example|item)\[|\.to_dict\(\s*(?:orient\s*=\s*)?['\"]records",
    ),
    Sign(
        r"^prompts are longer than the model|^an adapter is merged, loaded",
        rf"\brope_scaling{GIVEN}(?!null|None|rope_type|type)[\w{{]"
        rf"|--rope-scaling|hf-overrides|VLLM_ALLOW_LONG_MAX_MODEL_LEN",
        unless=r"original_max_position_embeddings",
    ),
    Sign(
        r"^prompts are longer than the model",
        # 32,768 tokens are what most models of today were trained on.
        rf"max[-_]model[-_]len{GIVEN}(?:3[2-9]\d{{3}}|[4-9]\d{{4}}|\d{{6,}})"
        rf"|^PARAMETER num_ctx \d{{5,}}|--ctx-size \d{{5,}}|--max-input-(?:length|tokens) \d{{5,}}",
    ),
    Sign(
        r"^some engines do not read how this adapter"
        r"|^the server applies the adapter with another scaling|^the scale of the adapter",
        rf"use_rslora{SET}{TRUE}|alpha_pattern['\"]?\s*[:=]\s*\{{\s*['\"]"
        rf"|lora_alpha{GIVEN}(?:[3-9]\d\d|\d{{4,}})\b|--lora-scale",
    ),
    Sign(
        r"^an adapter with DoRA is served",
        rf"use_dora{SET}{TRUE}|--use[-_]dora\b|peft_use_dora",
    ),
)

_ASKING_SIGNS = (
    Sign(
        r"^the answers are drawn at a high temperature",
        rf"\btemperature{GIVEN}(?:1\.[1-9]|1\.0[1-9]|[2-9](?:\.\d)?\b)",
    ),
    Sign(
        r"^the answers are drawn at a high temperature",
        rf"do_sample{SET}True(?!.*temperature)",
        beside_in_file=TRANSFORMERS_ASKS,
        unless_in_file=r"temperature|GRPO|PPO",
    ),
    Sign(
        r"^repetition_penalty or no_repeat_ngram_size|^the server applies a repetition penalty to greedy"
        r"|^generation_config.json makes right",
        rf"(?:repetition|repeat)_penalty{GIVEN}(?:1\.(?:0[5-9]|[1-9])|[2-9])|no_repeat_ngram_size{GIVEN}[1-9]"
        rf"|(?:frequency|presence)_penalty{GIVEN}(?:0?\.[3-9]|[1-9])|--repeat-penalty\s1\.[1-9]",
    ),
    Sign(
        r"^generation_config.json sets how engines sample|^requests without sampling settings",
        r"^['\"](?:temperature|top_p|top_k|repetition_penalty)['\"]\s*:",
        beside_in_file=r"transformers_version",
        beside=ASKS_OR_SERVES,
    ),
    Sign(
        r"^batches of prompts are padded on the right",
        rf"padding_side{GIVEN}right",
        beside=TRANSFORMERS_ASKS,
        unless_in_file=rf"padding_side{GIVEN}left|{TRAINS}",
    ),
    Sign(
        r"^batches of prompts are padded on the right",
        rf"{TOKENIZE}.*padding\s*=\s*(?:True|['\"](?:longest|max_length))"
        rf"|\.pad\(|apply_chat_template\(.*padding\s*=\s*True"
        r"|pipeline\(.*batch_size|\bpipe\w*\(.*batch_size",
        beside_in_file=TRANSFORMERS_ASKS,
        unless_in_file=rf"padding_side{GIVEN}left|{SEQ2SEQ}",
    ),
    Sign(
        r"^ids are given to generate without",
        r"\.generate\((?!.*(?:attention_mask|\*\*|sampling|[Pp]arams|prompts?\b|texts\b)).*\)",
        beside=r"transformers",
        unless_in_file=r"\bLLM\(",
    ),
    Sign(
        r"^prompts are cut on the right|^long prompts are truncated on the right",
        r"truncation\s*=\s*(?:True|['\"]).*max_length\s*=|max_length\s*=.*truncation\s*=\s*(?:True|['\"])",
        beside_in_file=ASKS,
        unless_in_file=rf"truncation_side{GIVEN}left|{TRAINS}",
    ),
    Sign(
        r"^a completion was asked for without max_tokens",
        r"(?<!chat\.)\bcompletions\.create\((?!.*(?:max_tokens"
        r"|\*\*)).*\)|SamplingParams\((?!.*(?:max_tokens|\*\*)).*\)"
        r"|\bllm\((?!.*(?:max_tokens|\*\*)).*\)|create_completion\((?!.*max_tokens).*\)"
        r"|\.generate\((?!.*(?:max_new_tokens|max_length|generation_config"
        r"|sampling|[Pp]arams|\*\*[a-z]*(?:gen|kw|arg|conf))).*\)",
        beside=r"vllm|openai|llama_cpp|transformers",
        unless_in_file=r"GenerationConfig\(|max_(?:new_)?tokens",
    ),
    Sign(
        r"^a completion was asked for without max_tokens|^answers are limited to fewer tokens|^answers are cut off at"
        r"|^generated answers are always cut off",
        rf"\b(?:max_(?:new_)?tokens|num_predict|generation_max_length"
        rf"|max_gen_length|n_predict){GIVEN}(?:\d|[1-5]\d|6[0-4])\b(?![.\d])",
        beside=ASKS_OR_SERVES,
    ),
    Sign(
        r"^a stop string is inside the answers",
        r"\bstop(?:_strings|_sequences|_words)?['\"]?\s*[=:]\s*\(?\[?\s*['\"](?!<|\[/"
        r"|\{)|^PARAMETER stop\s+['\"]?(?!['\"]?[<\[{])",
    ),
    Sign(
        r"^Ollama cuts prompts at num_ctx|^the server silently cuts a long prompt",
        rf"truncating input prompt|\bnum_ctx{GIVEN}(?:\d{{1,3}}|[1-4]\d{{3}})\b|OLLAMA_CONTEXT_LENGTH",
    ),
    Sign(
        r"^Ollama cuts prompts at num_ctx",
        rf"{MODELFILE_FROM}|ollama\.(?:chat|generate)\(|/api/(?:chat|generate)|localhost:11434",
        unless=r"num_ctx|OLLAMA_CONTEXT_LENGTH",
    ),
    Sign(
        r"^the server silently cuts a long prompt",
        r"truncate_prompt_tokens|--truncate|truncation_side|max_input_length",
        beside=SERVER,
    ),
    Sign(
        r"^each token is decoded alone",
        r"\.decode\(\s*\[?(?:int\()?(?:t|tok|token|tid|i|idx|next_\w+"
        r"|new_tok\w*|token_id|nxt|piece)\b(?:\.item\(\))?\)?\]?\s*[,)]"
        r"|\.join\(\s*\w+\.decode\(|\.join\(.*convert_ids_to_tokens",
    ),
    Sign(
        r"^generate returns the prompt's ids before the answer",
        r"decode\(\s*\w+\[0\]\s*[,)]|batch_decode\(\s*\w+\s*[,)]|\[0\]\[['\"]generated_text['\"]\]",
        beside_in_file=TRANSFORMERS_ASKS,
        unless_in_file=rf"shape\[-?1\]\s*:|\[len\(|len\([^)]{{1,40}}\)\s*:\]"
        rf"|return_full_text\s*=\s*False|_len:|{SEQ2SEQ}"
        r"|\[-1\]\s*:\]|removeprefix|\.split\(",
    ),
)

_SERVING_SIGNS = (
    Sign(
        r"^the adapter is not served|^a client asks a server for the base|^requests name the base model"
        r"|^two models give the same answers",
        r"\bmodel['\"]?\s*[=:]\s*['\"][\w.-]+/[\w.-]+['\"]|\b(?:MODEL|BASE)\w*\s*=\s*['\"][\w.-]+/[\w.-]+['\"]",
        beside_in_file=rf"{COMPLETIONS}|{CHATS}",
        beside=r"--lora-modules|enable[-_]lora",
    ),
    Sign(
        r"^the adapter is not served|^a trained adapter is prepared|^a vLLM server is given adapters",
        rf"{SERVER}|\bLLM\(",
        beside=LORA,
        unless=r"--lora-modules|enable[-_]lora|LoRARequest|merge|export_dir|--lora\b|merged",
    ),
    Sign(
        r"^the adapter is not served",
        MODELFILE_FROM,
        beside=rf"TEMPLATE|PARAMETER|ollama|{LORA}",
        unless=r"^ADAPTER\s+(?!=)|merge|save_pretrained_gguf|export_dir",
    ),
    Sign(
        r"^Ollama serves the file of an earlier run",
        r"ollama create|convert_hf_to_gguf|save_pretrained_gguf\(|ollama cp",
    ),
    Sign(
        r"^Ollama serves the file of an earlier run",
        MODELFILE_FROM,
        beside=r"^(?:TEMPLATE|PARAMETER|SYSTEM|ADAPTER)\b|ollama",
    ),
    Sign(
        r"^Ollama has no TEMPLATE",
        r"^TEMPLATE\s|^template\s*=|###\s?(?:Instruction|Response)",
        beside_in_file=r"^TEMPLATE\s.*(?:###|\[INST\]|USER:|\{\{\s*\.Prompt\s*\}\}\s*\"*$)|^###\s?Instruction",
    ),
    Sign(
        r"^Ollama has no TEMPLATE",
        rf"{MODELFILE_FROM}|save_pretrained_gguf\(|ollama create",
        beside=r"^(?:PARAMETER|SYSTEM|ADAPTER)\b|ollama|\.gguf",
        unless=r"^TEMPLATE\b",
    ),
    Sign(
        r"^Ollama has no TEMPLATE|^trained with one chat template|^the TEMPLATE of (?:the|a) Modelfile ends",
        r"^TEMPLATE\s",
    ),
    Sign(
        r"^trained with one chat template|^a server uses the chat template"
        r"|^a chat model is trained with the chat template",
        rf"\b(?:chat_)?template{SET}(?!qwen|chatml|tokenizer_default|null|none|jinja)[a-z][\w.-]*",
        beside=r"Qwen",
        unless=r"Llama-?[23]|Mistral|gemma-\d|Phi-",
    ),
    Sign(
        r"^trained with one chat template|^a server uses the chat template"
        r"|^a chat model is trained with the chat template",
        rf"\b(?:chat_)?template{SET}(?!llama-?3|llama-3|tokenizer_default|null|none|jinja)[a-z][\w.-]*",
        beside=r"Llama-3",
        unless=r"Qwen|Mistral|gemma-\d|Phi-",
    ),
    Sign(
        r"^trained with one chat template|^a server uses the chat template"
        r"|^a chat model is trained with the chat template",
        rf"\b(?:chat_)?template{SET}(?!mistral|tokenizer_default|null|none|jinja)[a-z][\w.-]*",
        beside=r"Mistral-",
        unless=r"Qwen|Llama-?3|gemma-\d|Phi-",
    ),
    Sign(
        r"^trained with one chat template|^a server uses the chat template"
        r"|^a chat model is trained with the chat template",
        r"get_chat_template\(|\bchat_template\s*=|^chat_template:|--chat-template|^template:|--template\s",
        beside=ASKS_OR_SERVES,
    ),
    Sign(
        r"^what is merged or served is another adapter",
        rf"adapter_name_or_path|{LOAD_ADAPTER}|--lora-modules"
        rf"|^ADAPTER\s+(?!=)|--lora_?[-_]?model[-_]dir|--adapters\s",
    ),
)

_CACHE_SIGNS = (
    Sign(
        r"^rows came tokenized, without labels|^the rows are already tokenized|^the trainer ignores the column",
        r"load_from_disk\(|skip_prepare_dataset|read_parquet\([^)]{0,60}(?:tok"
        r"|cache|ids|prep)|memmap\(|tokenized_path",
        unless=r"['\"]labels['\"]",
    ),
    Sign(
        r"^labels are masked by hand, and a|^labels are made with care|^rows came tokenized, without labels"
        r"|^the collator gives labels to tokens",
        LANGUAGE_MODELLING,
        beside=rf"{KEPT_ROWS}|-\s?100|['\"]labels['\"]|completion_mask|assistant_masks",
    ),
    Sign(
        r"^a cache of another template or tokenizer|^the tokenized rows in the cache"
        r"|^a script loads rows that it saved"
        r"|^tokenized rows decode to nonsense|^a model is trained on rows that another script",
        KEPT_UNLESS_NEW,
        beside=rf"{KEPT_ROWS}|cache_file_name|overwrite_cache",
    ),
    Sign(
        r"^padding stored in tokenized rows",
        r"padding\s*=\s*['\"]max_length",
        beside=KEPT_ROWS,
    ),
    Sign(
        r"^the cache of models and data",
        r"HF_(?:HOME|HUB_CACHE|DATASETS_CACHE|HUB_OFFLINE)|TRANSFORMERS_(?:CACHE|OFFLINE)|cache_dir",
    ),
)

SIGNS: tuple[Sign, ...] = (
    *_PROMPT_SIGNS,
    *_ROW_SIGNS,
    *_STOP_SIGNS,
    *_WEIGHT_SIGNS,
    *_ASKING_SIGNS,
    *_SERVING_SIGNS,
    *_CACHE_SIGNS,
)
