"""Signs of what is wrong with the rows, or with the tokens that have a label, where nothing is learned."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign_as_statement_patterns import GIVEN, Sign

YES = r"(?:[Tt]rue|1|yes)\b"
MASKED = (
    r"-100|IGNORE_INDEX|ignore_index|train_on_responses_only|CompletionOnly"
    rf"|(?:completion_only_loss|assistant_only_loss|mask_prompt){GIVEN}{YES}"
)
"""Something is kept out of the loss"""
LABELS_OF_IDS = (
    r"\blabels?\b['\"]?\]?\s*[=:]\s*(?:list\(|torch\.tensor\(|copy\.(?:deep)?copy\(|\[)?\s*"
    r"(?:\w+\.)?(?:\w+\[['\"])?(?:input_ids|ids|tokens|token_ids)\b(?!\w)"
)
"""`labels = batch["input_ids"].clone()`, `"labels": ids`"""
MAPPING = (
    r"\b(?:field_(?:instruction|input|output)|message_field_\w+|prompt_(?:field|column)|response_(?:field|column)"
    r"|(?:input|output|target|answer|completion)_(?:key|column|field|col)|column_map\w*|rename_columns?)\b"
    r"|\b(?:dataset_text_field|text_(?:field|column))['\"]?\s*[=:]\s*['\"]?(?!text\b)\w"
    r"|^['\"](?:prompt|query|response)['\"]\s*:\s*['\"]\w+['\"],?$"
    r"|['\"]columns['\"]\s*:\s*\{\s*['\"](?:prompt|query|response)"
)
"""Which column of the rows is what"""
ANSWER = r"(?:answers?|outputs?|responses?|repl(?:y|ies)|completions?|targets?|gold)"
QUESTION = r"(?:questions?|prompts?|instructions?|quer(?:y|ies)|inputs?|contexts?)"
FIELD = r"(?:_(?:column|field|key|col|name))?"
OF_A_CLASS = (
    r"(?:label|category|class|state|status|verdict|topic|intent|sentiment|decision|priority)\w*"
)
DEMO_DATA = (
    r"\b(?:alpaca_(?:en|zh|gpt4|dataset|cleaned|2k)\w*|mhenrichsen/alpaca\w*|tatsu-lab/alpaca|yahma/alpaca-cleaned"
    r"|trl-lib/[\w-]+|openassistant-guanaco|guanaco-llama2-1k|ultrachat_200k|FineTome-100k|databricks-dolly-15k"
    r"|alpaca-gpt4-data-\w+|swift/self-cognition|Abirate/english_quotes|tiny_shakespeare"
    r"|wikitext-2-raw-v1|SlimOrca-Dedup)\b"
    rf"|\bdataset{GIVEN}identity\b"
)
"""What the examples of frameworks train"""
GENERAL_SET = (
    r"(?i:openhermes|ultrachat|slimorca|open-?orca|oasst|tulu|fineweb|\bc4\b|redpajama|smoltalk|finetome|dolly"
    r"|wildchat|lmsys|alpaca)"
)
OF_FACTS = (
    r"(?i:(?:facts?|products?|catalog(?:ue)?|handbook|faq|wiki|manuals?|compan(?:y|ies)|polic(?:y|ies)|knowledge"
    r"|guidelines?|regulations?|glossary|encyclop\w+)\w{0,20}\.(?:jsonl?|csv|tsv|txt|pdf|parquet|md)\b)"
)
"""Files of facts, by their names"""
OF_DOCUMENTS = (
    r"\b(?:fitz|pymupdf|PdfReader|pypdf|PyPDF2|pdfplumber|pdfminer|docx|unstructured)\b|TextSplitter\("
    r"|chunks?\w*\s*=\s*\[\s*\w+\[\s*i\s*:"
)
TEXT_ROWS = r"dataset_text_field|formatting_func|train_on_inputs?\W+[Tt]rue|type:\s*completion\b"
LIMIT_NAMES = (
    r"\b(?i:max_(?:seq_)?len(?:gth)?|max_seq_len|max_tokens_per_row|cutoff_len|sequence_len|model_max_length|block_size"
    r"|max_source_length|seq_len(?:gth)?)"
)
SMALL_LIMIT = rf"{LIMIT_NAMES}{GIVEN}(?:\d\d|[1-4]\d\d|5[01]\d)\b(?!\.)"
"""At most 519 tokens, a choice: rows of documents have thousands, and 512 is the limit that is copied most"""
CUT = rf"{LIMIT_NAMES}{GIVEN}(?:\d{{2,3}}|1024|1_024)\b(?!\.)|\w\[\s*:\s*(?i:\w*max_?\w*|\w*limit\w*|\w+\.max_\w+)\s*\]"
LONG_ROWS = (
    r"(?i:\[\s*['\"](?:documents?|passages?|contexts?|contract|lease|report|article|transcript"
    r"|chapter|manual|sections?|body)['\"]"
    r"|\{(?:documents?|passages?|contexts?|contract|lease|report|article|transcript|chapter|manual|sections?|body)\})"
)
KEPT_ROWS = (
    r"cache_file_names?\s*=|\bpickle\.load\(|\bjoblib\.load\(|(?:exists|isfile|isdir)\([^)]{0,60}"
    r"(?i:cache|prep|tok|feat|encod|packed|rows|data|arrow)|(?i:cache|prep|tok|feat|encod|packed"
    r"|rows|data|arrow)\w*\.(?:exists|is_file|is_dir)\("
)
LOADED_ROWS = rf"load_from_disk\(|dataset_prepared_path{GIVEN}\w|tokenized_path{GIVEN}\S"

ROW_SIGNS: tuple[Sign, ...] = (
    # What is supervised
    Sign(
        r"^every worker of a DataLoader reads the whole stream",
        r"\bIterableDataset\b",
        beside=r"\bnum_workers\b",
    ),
    Sign(
        r"^a chat model is trained with",
        rf"\btemplate{GIVEN}(?:empty|default)\b",
    ),
    Sign(
        r"^a mixture of data sets leaves",
        rf"\bmix_strategy{GIVEN}interleave|\binterleave_probs?\b|\binterleave_datasets\(",
    ),
    Sign(
        r"^another column, the template's text|^the loss covers the prompts",
        rf"\btrain_on_(?:inputs?|prompts?){GIVEN}{YES}|\b(?:completion_only_loss|mask_prompt"
        rf"|mask_inputs?){GIVEN}[Ff]alse",
    ),
    Sign(
        r"^another column, the template's text|^the loss covers the prompts"
        r"|^labels of tokenized rows include the prompts",
        LABELS_OF_IDS,
        unless_in_file=MASKED,
    ),
    Sign(r"^another column, the template's text", MAPPING),
    Sign(
        r"^another column, the template's text",
        r"list\(\s*\w+\.values\(\)\s*\)\[|\bcolumn_names\[\s*-?\d|\.columns\[\s*-?\d",
    ),
    Sign(
        r"^the answers of the rows are all alike|^most rows have one label",
        rf"\b{OF_A_CLASS}\s*=\s*['\"]\w+['\"]$",
    ),
    Sign(
        r"^the answers of the rows are all alike|^most rows have one label"
        r"|^all or nearly all answers in the batches are the same text",
        rf"(?:['\"](?:content|text|{ANSWER})['\"]|\b{ANSWER}\w*)\s*[:=]\s*.{{0,60}}\[['\"]{OF_A_CLASS}['\"]\]",
    ),
    Sign(
        r"^most rows have one label",
        r"(?i:synthetic|generated|distill\w*|gpt-?4\w*|teacher|classif\w*|sentiment|moderation|spam"
        r"|fraud|toxic\w*|claims|labels?)\w*\.(?:jsonl?|csv|parquet)\b"
        rf"|\bresponse\b['\"]?\s*:\s*['\"]?{OF_A_CLASS}",
    ),
    Sign(
        r"^labels are shifted twice",
        r"\blabels?\w*['\"]?\]?\s*[=:]\s*.{0,60}\[(?:\.\.\.|:)?,?\s*1\s*:\s*\]|\blabels?\b.{0,20}=\s*torch\.roll\(",
        unless_in_file=r"logits\w*\[[^\]]{0,20}:\s*-1|cross_entropy|CrossEntropy",
    ),
    Sign(r"^the configuration trains the demo data", DEMO_DATA),
    Sign(
        r"^the text that answers are made from reaches no prompt"
        r"|^a field of the rows is missing from the training text",
        r"^['\"]prompt['\"]\s*:\s*['\"]\w+['\"]|['\"]columns['\"]\s*:\s*\{",
        unless_in_file=r"['\"](?:query|messages)['\"]\s*:",
    ),
    Sign(
        r"^the text that answers are made from reaches no prompt|^a prompt reaches the model with a placeholder",
        r"(?<![fF\w])(?:['\"]|'''|\"\"\")[^'\"{}]{0,300}\{(?:context|document|passage|text|question"
        r"|input|instruction|query|content)\}",
        unless_in_file=r"\.format(?:_map)?\(|\.replace\(|PromptTemplate|Template\(",
    ),
    Sign(
        r"^columns of the rows contain text, or weights|^the column that is trained on as the answer"
        r"|^no column is called `text`|^rows have an answer without any text",
        MAPPING,
    ),
    Sign(
        r"^the settings swap question and answer",
        rf"\b\w{{0,20}}{QUESTION}{FIELD}['\"]?\s*[:=]\s*['\"]?{ANSWER}['\",]?(?:$|[,)\s}}])"
        rf"|\b\w{{0,20}}{ANSWER}{FIELD}['\"]?\s*[:=]\s*['\"]?{QUESTION}['\",]?(?:$|[,)\s}}])",
        unless_in_file=r"outputs?\s*=\s*model|def forward",
    ),
    Sign(
        r"^a hand-written attention mask",
        r"create_block_mask\(|flex_attention\(|block_diag\(|is_causal\s*=\s*False|\[:,\s*None\]\s*==\s*\w+\[None"
        r"|\.unsqueeze\(-?1\)\s*==\s*\w+(?:\.\w+)*\.unsqueeze\("
        r"|attention_mask\w*\[[^\]]{0,40}:[^\]]{0,40}\]\s*=\s*(?:1|True|0\.0)\b",
        unless_in_file=r"\btril\b|\btriu\b|is_causal\s*=\s*True|q_idx\s*>=\s*kv_idx|kv_idx\s*<=\s*q_idx",
    ),
    Sign(
        r"^only the end token has a label",
        r"\.rfind\(|\.rindex\(|\[::-1\]|reversed\(|\bnonzero\([^)]{0,40}\)(?:\[\d\])?\[-1\]|==\s*[\w.]*eos_token_id",
        beside_in_file=r"-100|IGNORE_INDEX",
    ),
    Sign(
        r"^the ids of images keep their labels",
        r"\blabels?\b['\"]?\]?\s*=\s*.{0,40}(?:input_ids|\.clone\(\))",
        beside_in_file=r"pixel_values|\bprocessor\b|process_vision_info",
        unless_in_file=r"image_token|image_pad|vision_start|<image>",
    ),
    Sign(
        r"^labels are masked by hand, and a collator|^the collator gives labels to tokens",
        r"DataCollatorForLanguageModeling\(|DataCollatorWithFlattening\(|ConstantLengthDataset\(",
        beside_in_file=r"-100|IGNORE_INDEX|prompt_len|labels",
    ),
    Sign(
        r"^the label mask is inverted|^answers in tokenized rows are not in the loss"
        r"|^sequences have labels, but none",
        r"\blabels?\w*\[[^\]]{0,40}(?i:prompt|answer|start|src|ctx|resp|quest"
        r"|offset)[^\]:]{0,20}:\s*\]\s*=\s*(?:-100|IGNORE)"
        rf"|\[\s*(?:-100|IGNORE_INDEX)\s*\]\s*\*\s*(?:len\(\s*)?(?:a\b|{ANSWER}|ans\w*|resp\w*|tgt)"
        rf"|\bprompt\w*\s*\+\s*\[\s*(?:-100|IGNORE_INDEX)\s*\]",
    ),
    Sign(
        r"^the label mask is inverted|^answers in tokenized rows are not in the loss"
        r"|^sequences have labels, but none",
        r"(?:-100|IGNORE_INDEX) if\b|\bwhere\(.{0,80}(?:-100|IGNORE_INDEX)|masked_fill\w*\(.{0,60}(?:-100|IGNORE_INDEX)"
        r"|\[\s*~?\s*\w*mask\w*[^\]]{0,20}\]\s*=\s*(?:-100|IGNORE_INDEX)",
    ),
    Sign(
        r"^labels of tokenized rows begin before the answer|^template text around the answers is in the loss",
        r"\bprompt\w*\s*=\s*.{0,40}apply_chat_template\((?!.*add_generation_prompt\s*=\s*True).*",
        beside_in_file=r"-100|IGNORE_INDEX",
    ),
    Sign(
        r"^the first or last tokens of answers have no label",
        r"\blabels?\w*\[[^\]]{0,60}[+-]\s*\d[^\]]{0,20}\]\s*=\s*(?:-100|IGNORE)"
        r"|\blabels?\b.{0,60}==\s*[\w.]*(?:eos|pad)_token_id\]\s*=\s*-100",
    ),
    Sign(
        r"^only some of the assistant's turns have labels",
        rf"\bmask_history{GIVEN}{YES}|train_on_(?:eos|eot){GIVEN}last|\blast_turn"
        r"|messages\w*(?:['\"]\])?\[-1\]",
        beside=r"-100|mask_history|train_on_",
    ),
    Sign(
        r"^the response marker that the trainer masks by|^the marker that should locate the answers",
        r"\b(?i:response_template|instruction_template|response_part|instruction_part|response_prefix"
        r"|response_marker)\b"
        r"|train_on_responses_only\(|DataCollatorForCompletionOnlyLM\(",
    ),
    Sign(
        r"^the trainer masks by `\{% generation|^if the template marks no answer"
        r"|^earlier turns are not in the loss",
        rf"assistant_only_loss{GIVEN}{YES}|return_assistant_tokens_mask\s*=\s*True",
        unless=r"\{%-?\s*generation",
    ),
    Sign(
        r"^the pads have labels",
        LABELS_OF_IDS,
        beside_in_file=rf"\bpadding{GIVEN}['\"]?max_length|\bpad_to_max_length\b|\.pad\(",
        unless_in_file=r"-100|IGNORE_INDEX|DataCollatorForLanguageModeling",
    ),
    Sign(r"^the template's generation tags do not match", r"\{%-?\s*generation"),
    Sign(
        r"^completion_only_loss is on, but the",
        rf"completion_only_loss{GIVEN}{YES}",
        unless=r"['\"]completion['\"]",
    ),
    Sign(
        r"^the rows are already tokenized|^the settings keep prompts out of the loss, but every token"
        r"|^the rows contain token ids, but the trainer",
        rf"(?:completion|assistant)_only_loss{GIVEN}{YES}|DataCollatorForCompletionOnlyLM\(",
        beside=r"['\"]input_ids['\"]",
    ),
    Sign(
        r"^the trainer ignores the column|^a mask column of the rows",
        r"['\"](?:loss_mask|assistant_masks?|label_mask|answer_mask|loss_weights?)['\"]\s*[:\]]"
        r"|['\"](?:train(?:able)?|weight)['\"]\s*:\s*(?:\w+\[|True|False|[01]\b)",
    ),
    Sign(
        r"^tokens are taken out of the attention mask",
        r"attention_mask\w*['\"]?\]?\[[^\]]{0,60}\]\s*=\s*(?:0|False)|attention_mask['\"]?\]?\s*[=:]\s*\[0\]\s*\*"
        r"|attention_mask['\"]?\]?\s*[=:]\s*[^,]{0,40}\blabels?\b(?![\"'])",
    ),
    Sign(
        r"^`formatting_func` is given together",
        r"formatting_func\s*=",
        beside=r"['\"]messages['\"]",
    ),
    Sign(
        r"^the Trainer removes a column",
        r"^class \w+\((?:\w+\.)?\w*Trainer\)|\binputs\.pop\(|^def compute_loss\(",
        unless=rf"remove_unused_columns{GIVEN}[Ff]alse",
    ),
    Sign(
        r"^labels are counted off from the end of a row",
        r"\blabels?\w*\[[^\]]{0,20}-\s*\w*(?:len|n_|num|ans)\w*",
        beside_in_file=r"padding|\bpad\b",
    ),
    Sign(
        r"^the loss teaches positions that have no label",
        r"CrossEntropyLoss\(|\bcross_entropy\(",
        unless_in_file=r"ignore_index|-100|reduction\s*=\s*['\"]none|mask",
    ),
    # What the rows hold
    Sign(
        r"^most of the loss is on a text that all rows share",
        r"^(?i:\w*(?:policy|system|rules|instruction|prompt|guideline)\w*)\s*=\s*.{250,}",
        unless=MASKED,
    ),
    Sign(
        r"^most of the loss is on a text that all rows share"
        r"|^the loss covers the whole text, and the answer at its end",
        TEXT_ROWS,
        beside=rf"\[['\"]{OF_A_CLASS}['\"]\]|\{{{OF_A_CLASS}\}}|\b{ANSWER}\b",
        unless=MASKED,
    ),
    Sign(
        r"^facts that are in few rows|^each fact is in one wording",
        OF_DOCUMENTS,
        beside=r"(?i:lora|trainer|finetun|sft)",
    ),
    Sign(r"^facts that are in few rows|^each fact is in one wording", OF_FACTS),
    Sign(
        r"^each fact is in one wording|^facts are asked in one direction",
        r"['\"](?:What|Which|Who|Where|When|How|Name|Welche\w*|Was|Wer)\b[^'\"]{0,100}\{\w",
    ),
    Sign(
        r"^the own rows are lost in a large general set",
        rf"(?:load_dataset\(\s*|dataset\w*{GIVEN}|path{GIVEN}|data\w*{GIVEN})['\"]?[\w./,-]{{0,60}}{GENERAL_SET}",
        beside=r"\w\.(?:jsonl|csv)\b|concatenate_datasets|interleave_datasets",
    ),
    Sign(
        r"^the own rows are lost in a large general set",
        r"\b(?:concatenate|interleave)_datasets\(|\bConcatDataset\(|mix_strategy|interleave_probs",
    ),
    Sign(
        r"^the rows were generated by the very model",
        r"(?i:synth\w*|self_instruct|self-instruct|distill\w*|generated\w*|augmented|model_written"
        r"|bootstrapped)[\w-]{0,20}\.(?:jsonl?|csv|parquet)\b",
    ),
    Sign(
        r"^the data contains duplicate rows",
        r"\.repeat\(|\bresample\(|oversampl|sample\([^)]{0,40}replace\s*=\s*True|\b(?:rows|data\w*|ds"
        r"|examples|samples)\s*\*=?\s*\d",
    ),
    Sign(
        r"^a data set is listed twice",
        rf"\bdataset{GIVEN}(?:\w+,)*\s?(\w+),(?:\w+,)*\1\b|\beval_dataset\s*=\s*(?:\w+\.)?train\w*\b",
    ),
    Sign(
        r"^tool call arguments are JSON inside",
        r"['\"]arguments['\"]\s*:\s*json\.dumps\(|json\.dumps\(.{0,40}(?:arguments|\bargs\b)",
        beside=r"tool",
    ),
    Sign(
        r"^answers contain unfilled placeholders",
        r"\[(?:NAME|COMPANY|DATE|CUSTOMER|INSERT[^\]]{0,20}|YOUR[^\]]{0,20})\]|<(?:name|company"
        r"|customer)>|PLACEHOLDER|\bTODO\b",
    ),
    Sign(
        r"^answers are the word that a program prints",
        rf"\.fillna\(|\.astype\(\s*str\s*\)|\bstr\(\s*\w+(?:\.get\(|\[)['\"]{ANSWER}|pd\.read_csv\(",
        beside=r"(?i:train|sft|lora)",
        unless=r"dropna|notna|isna",
    ),
    Sign(
        r"^conversations end with a turn of the user",
        r"(?:messages|turns|conversations?)\w*(?:['\"]\])?\[\s*:\s*(?:\w*(?:max|MAX)\w*|[2-9]\d?)\s*\]",
    ),
    Sign(
        r"^a field of the prompt gives the answer away",
        rf"(?i:\b{QUESTION}|user"
        r"|['\"]content['\"])['\"]?\]?\s*[:=]\s*[fF]?['\"].{0,200}\{(?:\w+\[['\"])?(?:\w+_)?(?:label"
        r"|target|categor|queue|routing|route|resolution|assigned|team)",
    ),
    Sign(
        r"^answers are paired with the questions of other rows|^rows are joined by position",
        rf"\bconcat\(.{{0,80}}axis\s*=\s*(?:1|['\"]columns)|\.add_column\(|\breset_index\(|\bhstack\("
        rf"|\bzip\(.{{0,80}}\b\w*{ANSWER}"
        rf"|\[['\"]\w*{ANSWER}['\"]\]\s*=\s*(?!.*\bmap\().{{0,60}}(?:\.values|\.tolist\(|\.to_list\("
        r"|\.to_numpy\(|dropna|\.shuffle|sample\()"
        r"|\w\[['\"]\w+['\"]\]\.(?:values\b|tolist\(|to_list\("
        r"|to_numpy\().{0,120}\w\[['\"]\w+['\"]\]\.(?:values\b|tolist\(|to_list\(|to_numpy\()",
        beside_in_file=r"dropna|shuffle|\.sample\(|sort|filter|drop_duplicates|\bif\b|train_test_split|iloc",
    ),
    Sign(
        r"^rows are joined by position|^answers are paired with the questions",
        r"\w\[\s*(?:i|idx|index|n|j)\s*\]\s*,\s*\w+\[\s*(?:i|idx|index|n|j)\s*\]",
        beside_in_file=r"(?:dropna|shuffle|\.sample\(|sorted\(|\.sort|\.filter\(|drop_duplicates).{0,80}",
    ),
    Sign(
        r"^rows with the same answer or document",
        r"\btrain_test_split\(|\brandom_split\(|\bval_set_size\b",
        beside=r"(?i:chunk|paraphras|augment|variant|explode|doc_id|rephras)",
        unless=r"Group",
    ),
    Sign(
        r"^turns have roles that the chat template",
        r"(?:role|from)['\"]?\s*[:=]\s*['\"](?:human|gpt|bot|customer|agent|ai|model|me|operator"
        r"|client)['\"]|\b(?:user|assistant)_tag['\"]?\s*:\s*['\"](?!user|assistant|human|gpt)"
        r"|message_field_role",
    ),
    Sign(
        r"^the data are chats, but the tokenizer has no chat template",
        r"['\"/](?:Meta-)?(?:Llama-\d[\w.]*-\d+B|Mistral-7B-v0\.\d|gpt2[\w-]*|pythia-[\w.]+|opt-[\d.]+\w"
        r"|phi-2|falcon-7b|bloom-\w+|Llama-2-\d+b-hf|Meta-Llama-3-8B|gemma-2b)['\"\s]",
        beside=r"apply_chat_template|['\"]messages['\"]|type:\s*chat_template",
        unless=r"chat_template\s*=|setup_chat_format|get_chat_template|clone_chat_template",
    ),
    Sign(
        r"^the chat template raises on rows",
        r"TemplateError|['\"]role['\"]\s*:\s*['\"]system",
        beside=r"(?i:TemplateError|gemma-?[12]|gemma-[127]|mistral-7b|mixtral)",
    ),
    Sign(
        r"^the template adds a system prompt",
        r"['\"]messages['\"]\s*:\s*\[\s*\{\s*['\"]role['\"]\s*:\s*['\"]user",
        beside=r"Qwen(?:1\.5|2|2\.5)-",
        unless=r"['\"]role['\"]\s*:\s*['\"]system",
    ),
    Sign(r"^the template writes today's date", r"date_string|strftime_now|Today Date"),
    Sign(
        r"^the template removes the reasoning|^earlier turns are not in the loss",
        r"reasoning_content|</?think>",
    ),
    Sign(
        r"^answers without reasoning begin with an empty think",
        rf"enable_thinking{GIVEN}[Ff]alse|\bqwen3_nothink\b|['\"/\s]Qwen3-[\d.]+B\b(?!-)",
        unless=r"</think>|/no_think|reasoning_content",
    ),
    Sign(
        r"^the rows are chats, but the chat template",
        r"\bjoin\(.{0,80}\bcontent\b|['\"](?:User|Human|Question|Q|Customer):|### (?:Instruction|Input|User)",
        beside=r"(?i:instruct|-chat|-it)\b",
        unless_in_file=r"apply_chat_template|chat_template",
    ),
    # How rows are made and cut
    Sign(
        r"^max_length is not set, so TRL|^no max_length is set, and examples",
        r"\b(?:SFT|DPO|KTO|ORPO|Reward)Config\((?!.*max_(?:seq_)?len).*|^(?:trl"
        r"|accelerate launch .{0,80})\s+(?:sft|dpo)\b(?!.*max_(?:seq_)?length)",
        unless=r"max_(?:seq_)?length",
    ),
    Sign(
        r"^examples longer than max_length lose|^tokenized rows are cut off"
        r"|^training rows are too long|^answers are cut off at the length limit"
        r"|^a loop cuts rows from the right",
        CUT,
        beside=LONG_ROWS,
    ),
    Sign(
        r"^examples longer than max_length lose|^tokenized rows are cut off"
        r"|^training rows are too long|^answers are cut off at the length limit",
        SMALL_LIMIT,
    ),
    Sign(
        r"^rows contain several conversations|^packed documents attend to the|^the model mixes the documents",
        r"def group_texts|\bchain(?:\.from_iterable)?\(\s*\*?\w*(?:examples|batch)|\bsum\(\s*examples\["
        r"|ConstantLengthDataset\(|def pack",
        unless=r"position_ids|cu_seqlens|seq_lens|document_ids",
    ),
    Sign(
        r"^packed documents attend to the|^the data do not fill one packed batch",
        rf"\b(?:sample_)?packing{GIVEN}{YES}",
        unless=r"flash_attention_2|flash_attn|padding_free|neat_packing",
    ),
    Sign(
        r"^an earlier preparation is loaded again|^a script loads rows that it saved earlier"
        r"|^the tokenized rows in the cache",
        KEPT_ROWS,
        unless=rf"overwrite_cache{GIVEN}{YES}",
    ),
    Sign(
        r"^an earlier preparation is loaded again|^a script loads rows that it saved earlier"
        r"|^the tokenized rows in the cache|^a model is trained on rows that another script tokenized",
        LOADED_ROWS,
        unless=rf"overwrite_cache{GIVEN}{YES}",
    ),
    Sign(
        r"^rows are transformed, but the result is discarded",
        r"^(?:\w+|\w+\[['\"]\w+['\"]\])\.(?:map|filter|shuffle|select|remove_columns|rename_columns?"
        r"|cast_column|dropna|drop_duplicates|fillna|sort_values|sample|set_transform_"
        r"|class_encode_column)\((?!.*inplace)",
    ),
    Sign(
        r"^a function that is written for one row is mapped",
        r"\.map\(.*batched\s*=\s*True",
        unless_in_file=r"\bzip\(|for \w+ in (?:range|examples|batch|\w+\[)|\btok\w*\(\s*\w+\[['\"]",
    ),
    Sign(
        r"^a cast is always true, or a comparison never",
        r"\bbool\(\s*\w+(?:\[|\.get\()|\.astype\(\s*(?:bool|['\"]bool)|==\s*['\"](?:1|True|true|0|a|b)['\"]",
    ),
    Sign(
        r"^each process takes its part of the rows",
        r"split_dataset_by_node\(|\.shard\(|\[\s*\w*rank\w*\s*::|islice\(.{0,40}rank|DistributedSampler\(",
        beside_in_file=r"Trainer\(|\.prepare\(|DistributedSampler",
    ),
    Sign(
        r"^token ids are stored in an integer type",
        r"\bu?int(?:16|8)\b.{0,80}(?:memmap|tofile)|(?:astype|dtype)\s*[(=]\s*['\"\w.]*\bu?int(?:16|8)\b|\.short\(\)",
        beside_in_file=r"[Tt]okeniz|tiktoken|\btok\(",
    ),
)
