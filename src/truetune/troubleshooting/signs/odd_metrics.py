"""Signs of what causes odd metrics."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign_as_statement_patterns import GIVEN, Sign

# What the parts of an evaluation are called.
HELD_OUT = r"(?:eval|val|valid|validation|dev|test|held_?out|holdout)"
PREDICTED = r"(?:pred|out|resp|gen|hyp|guess|completion|reply|candidate|y_?hat|parsed)"
EXPECTED = r"(?:gold|label|ref|target|expected|truth|solution|answer_key|y_true)"
ACCESS = r"(?:\[[^\]]{1,30}\]|\.\w{1,20}(?:\(\))?){0,4}"
"""`row["answer"].strip().lower()`"""
EXPECTED_SIDE = (
    rf"(?:\b\w{{1,16}}(?:\.|\[['\"]))?\w{{0,12}}(?:{EXPECTED}"
    rf"|answer)\w{{0,12}}(?:['\"]\])?{ACCESS}\)?"
)
"""`row["label"]`, `gold.lower()`"""
PREDICTED_SIDE = (
    rf"\(?(?:\b\w{{1,16}}(?:\.|\[['\"]))?\w{{0,12}}(?:{PREDICTED}|text|answer|content)\w{{0,12}}"
)
GENERATES = r"\.generate\(|SamplingParams|completions\.create|\bpipeline\(|LLM\("
SCORES = r"(?i:accuracy|\bacc\b|exact|correct|\bf1|rouge|bleu|\bscores?\b|right)"
GREEDY_LOGITS = (
    r"\.argmax\(|np\.argmax\(|torch\.max\([^)]{0,60}(?:dim|axis|-1)|\.max\((?:dim=)?-1\)"
)
MASKED = r"[!=]= ?-100|ignore_index|masked_select|\[(?:mask|keep|valid|m)\b|> ?-1\b|>= ?0\b"
SHIFTED = (
    r"\[(?::|\.\.\.), ?:-1|\[(?::|\.\.\.), ?1:|shift_(?:logits|labels|preds)|(?:logits|preds?"
    r"|predictions)\[:-1\]|\.roll\("
)
NEXT_TOKEN = r"\[:, ?-1|num_labels|SequenceClassification|TokenClassification"
LANGUAGE_MODEL = r"CausalLM|Seq2SeqLM|ConditionalGeneration|SFTTrainer|labels|targets"
REGEX = r"re\.(?:search|findall|match|compile|split|sub)\(|regex_pattern"
SPLITS = (
    r"train_test_split\(|random_split\(|KFold\(|\.sample\(frac|validation_split|val_set_size"
    r"|test_size|val_size"
)
# Eval rows that are all of one source or come from the file of the training.
HUB_NAME = r"['\"=\s][A-Za-z][\w.-]{1,40}/[\w.-]{2,60}"
LOADS_FROM_HUB = (
    r"(?:Model|LM|Classification"
    r"|LLM)\w{0,20}(?:\.from_pretrained)?\(\s*(?:model=)?['\"][A-Za-z][\w-]{1,40}/\w"
)
GIVES_ADAPTER = (
    r"PeftModel|load_adapter|enable_lora|lora_request|adapter_name|\.train\(\)|[Tt]rainer\(|merged"
)
JUDGES = r"(?i:judge|verdict|win_?rate|which (?:answer|response|assistant) is better|rate the)"
PERPLEXITY = r"(?:math|np|torch|numpy)\.exp\(|\bexp\("
LOADER = r"\w{0,20}(?:loader|dl|dataloader|batches)\w{0,10}"
PROCESSES = (
    r"DistributedSampler|init_process_group|Accelerator\(|torchrun|accelerate launch|LOCAL_RANK"
    r"|world_size|DistributedDataParallel"
)
# A limit of up to 512 tokens: worked answers of mathematics have 150 to 600, thinking ones thousands. At half, limits
# of 300 were missed that cut half of such answers; at double, usual limits of chats were shown.
FEW_TOKENS = r"(?:\d{1,2}|[1-4]\d\d|50\d|51[0-2])\b(?!\.)"
LIMIT_OF_ANSWER = (
    r"\b(?:max_new_tokens|max_tokens|max_gen_toks|max_completion_tokens|num_predict|n_predict|max_gen_len"
    r"|max_generation_length|generation_max_length|max_response_length|max_completion_length"
    r"|max_generated_tokens|max_new"
    r"|MAX_(?:NEW|TOKENS|OUT|GEN)\w{0,10})\b"
)

_LEAKS = (
    Sign(
        "rows of the evaluation are in the training|evaluation data are part of the training",
        # evaluation data by the name of the training data
        rf"\b{HELD_OUT}\w{{0,12}}['\"]?\s*[=:]\s*(?:load_dataset\([^)]{{0,80}}split\s*=\s*['\"]train"
        rf"|\w{{0,12}}train(?:ing)?(?:_\w{{1,10}})?\b\s*(?:\.select|\.shuffle|\[|\.sample|,|\)|$)"
        rf"|random\.(?:sample|choices)\(|\w{{1,20}}\.sample\()",
        unless_in_file=r"\.drop\(|not in |isin\(|difference\(|train_test_split|\bdel ",
    ),
    Sign(
        "rows of the evaluation are in the training|a data set is listed twice",
        r"train['\"]?\s*[:=]\s*['\"]([\w./-]{4,60})['\"],\s*['\"]?(?:test|eval|val|validation"
        r"|dev)\w{0,12}['\"]?\s*[:=]\s*['\"]\1['\"]"
        r"|\b(?:concat|concatenate_datasets|pd\.concat|cat)\b.{0,60}\b(?:train\w{0,10}.{0,20}(?:test"
        r"|val|dev)|(?:test|val|dev)\w{0,10}.{0,20}train)",
    ),
    Sign(
        "rows of the evaluation are in the training",
        SPLITS,
        unless=r"(?i)dedup|drop_duplicates|minhash|\.unique\(|Group(?:Shuffle|K)|set\(",
    ),
    Sign(
        "rows were repeated, or others made of them, before they were divided",
        r"(?i)RandomOverSampler|SMOTE\(|\bresample\(|over_?sampl|up_?sampl|augment|back_?translat"
        r"|paraphras|rephras"
        # `[v for row in rows for v in variants(row)]`: several rows of one
        r"|\[\w{1,20} for \w{1,20} in [\w.]{1,30} for \w{1,20} in \w{1,30}\("
        r"|explode\(|\.repeat\(|(?:rows|examples|data|samples|minority|pos"
        r"|items)\w{0,10}\s*\*=?\s*(?:\d|\w*factor|n\b)"
        r"|random\.choices?\(",
        beside_in_file=rf"{SPLITS}|\.drop\(|\.sample\(|split\s*=\s*int\(|\[:\s*\w{{0,20}}(?:cut|split|n_train"
        r"|\d\s*\*)|shuffle\(",
    ),
    Sign(
        "rows of one document, conversation or patient are split|neighbouring rows come from the same source",
        rf"{SPLITS}|\[:\s*(?:cut|split|n_train|int\()|shuffle\(",
        unless_in_file=r"Group(?:Shuffle|K)|groups\s*=|group_id|by_(?:doc|patient|user|customer|conv)",
        beside_in_file=r"(?i)\b(?:chunks?|doc_?(?:id|ument)?|patient|customer|conversation|conv_id|session"
        r"|thread|speaker|author"
        r"|case_id|ticket_id|user_id|source_id|article|contract|page|passages?)(?:_id|s)?\b.{0,80}",
    ),
    Sign(
        "a field of the prompt gives the answer away|a field of the prompt gives the answer away",
        r"(?i)f['\"].{0,200}\{[^{}]{0,40}\b(?:\w{0,10}id|queue|source|folder|file\w{0,5}|path|header"
        r"|meta\w{0,5}|tags?|category|channel"
        r"|department|team|status|priority|assignee|split|url|from|product|resolution|code)\b[^{}]{0,10}\}",
    ),
    Sign(
        "the benchmark's test rows are in the training mix",
        r"(?i)(?:load_dataset\(|path\s*:|dataset\w{0,8}['\"]?\s*[:=]|data\w{0,8}/"
        r"|--dataset\S{0,8}).{0,100}(?:metamath|orca|hermes|wizard|flan|tulu|evol|platypus"
        r"|numina|camel|mathinstruct|gsm8k|mmlu|hellaswag|humaneval|mbpp|alpaca|sharegpt|ultrachat"
        r"|instruct[_-]mix|openinstruct|code-?feedback|magpie|infinity)",
        beside=r"(?i)gsm8k|mmlu|humaneval|mbpp|hellaswag|arc_|truthfulqa|lm_eval|benchmark",
        unless=r"(?i)decontamin|\bn_?gram",
    ),
    Sign(
        "accuracy or loss is computed on a part of the rows",
        rf"\b{HELD_OUT}\w{{0,12}}['\"]?\s*[=:].{{0,80}}(?:\[:\s*\d{{2,4}}\s*\]|\[-\d{{2,4}}:\]"
        r"|select\(range\(|\.head\(|\[:\d{1,4}%?\])"
        r"|\b(?:max_eval_samples|eval_limit|limit_val_batches|max_eval_instances|max_predict_samples"
        rf"|eval_iters|limit_test_batches){GIVEN}\d"
        r"|--limit[ =]\d|\blimit\s*=\s*\d",
    ),
    Sign(
        "accuracy or loss is computed on a part of the rows",
        rf"\[:\s*\d{{2,4}}\s*\]|select\(range\(|\.head\(\d|islice\(|\bmax_samples{GIVEN}\d|\[:\d{{1,2}}%\]"
        r"|itertools\.islice|\.take\(",
    ),
    Sign(
        "the best of many checkpoints was chosen on the test rows",
        r"\b(?:eval|val|validation|dev)\w{0,16}['\"]?\s*[=:].{0,60}\btest\b(?!['\"]\])"
        r"|glob\(.{0,60}check|for \w{1,20} in .{0,60}(?:checkpoint|ckpt|step)",
    ),
    Sign(
        "rows are divided by hash\\(\\) of a text",
        r"(?<![\w.])hash\(",
        unless=r"PYTHONHASHSEED",
    ),
    Sign(
        "the reference is in the prompt: whole messages",
        r"apply_chat_template\((?:\w{1,20}"
        r"|\w{1,20}\[['\"]\w{1,20}['\"]\])\s*,.{0,160}add_generation_prompt\s*=\s*True",
        unless_in_file=r"\[:-1\]|\.pop\(|messages\s*=\s*\[\s*\{|role.{0,6}user.{0,120}\}\s*\]",
    ),
)

_PARSERS = (
    Sign(
        "the scoring script looks for a mark|the parser does not read the answers",
        r"(?:re\.\w{1,10}\(|regex_pattern|\.split\(|\.r?partition\(|\.r?find\(|\.index\(|\bin \w{1,20}"
        r"|pattern\w{0,8}['\"]?\s*[=:]).{0,60}"
        r"(?:####|boxed|(?i:answer is|<answer>|answer:|final answer|result:))"
        r"|['\"](?:####|.{0,20}boxed).{0,60}(?:\bin\b|\.split|,)",
    ),
    Sign(
        "the parser does not read the answers|answers should be JSON|a program that reads the"
        " model's answers",
        rf"{REGEX}|def \w{{0,12}}(?:extract|parse|read)_(?!args|rows|data|jsonl)\w{{0,20}}\("
        rf"|loads\(\s*{PREDICTED_SIDE}",
        beside_in_file=rf"{SCORES}|regex_pattern",
    ),
    Sign(
        "the first capital letter A to D",
        r"(?:search|findall|match|compile|finditer|regex_pattern).{0,30}\[A-[A-J]\]|\[ABC[A-J]{0,4}\]",
    ),
    Sign(
        "a pattern takes the first letter or digit",
        r"(?:search|match|findall|compile|finditer|regex_pattern).{0,12}r?['\"(].{0,12}(?:\[A-[A-J]\]"
        r"|\[A-Z|\[ABC|\[?\\d|\[0-9|\[1-5|\[1-9|\(A\|B|\[-\\d|-\?\\d)"
        r"|group_select\s*:\s*0|isdigit\(\)",
    ),
    Sign(
        "the parser reads anything",
        r"(?i)(?:search|findall|match).{0,12}r?['\"(].{0,12}(?:\[A-Z|\[A-D|\\d|\[0-9|\\w)"
        rf"|\bin {PREDICTED}\w{{0,12}}\b|\bin (?:answer|text|response)\b"
        r"|if not \w{0,20}(?:pred|answer)\w{0,10}\s*:\s*return (?:True|1)|flexible",
        beside_in_file=SCORES,
    ),
    Sign(
        "the reference is searched inside the answer|compares answers with labels so that wrong answers",
        rf"(?i){EXPECTED_SIDE} in {PREDICTED_SIDE}"
        rf"|\.(?:startswith|endswith|count|find)\(\s*\w{{0,12}}(?:{EXPECTED}|answer)|\bincludes\("
        r"|string\.includes|str\.contains\(|icontains|type:\s*contains",
    ),
    Sign(
        "exact match compares letter for letter",
        rf"(?i)[\w\])'\"]\s*==\s*(?:\w{{1,20}}\(\s*)?{EXPECTED_SIDE}"
        rf"|{EXPECTED_SIDE}\s*==\s*(?:\w{{1,20}}\(\s*)?{PREDICTED_SIDE}"
        r"|metric\s*:\s*exact_match|load\(['\"]exact_match",
        unless_in_file=r"\.lower\(\)|casefold|normali[sz]e|ignore_case|argmax",
    ),
    Sign(
        "references are numbers or dates in another form",
        rf"(?i)[\w\])'\"]\s*==\s*(?:\w{{1,20}}\(\s*)?{EXPECTED_SIDE}"
        rf"|{EXPECTED_SIDE}\s*==\s*(?:\w{{1,20}}\(\s*)?{PREDICTED_SIDE}",
        unless_in_file=r"float\(|Decimal\(|strptime|dateutil|replace\(['\"],['\"]|argmax",
    ),
    Sign(
        "the model thinks before it answers",
        r"(?i)qwen3|deepseek-r1|\bqwq|enable_thinking|thinking|magistral|gpt-oss|reason(?:ing|er)",
        unless=r"</think>|enable_thinking['\"]?\s*[=:]\s*(?i:false)|reasoning[-_]parser|/no_think",
        beside=rf"{GENERATES}|lm_eval|predict",
    ),
    Sign(
        "code or JSON is between ``` fences",
        rf"\b(?:exec|loads|parse|compile|literal_eval|validate_json)\(\s*{PREDICTED_SIDE}|\bexec\("
        r"|check_correctness|evaluate_functional|humaneval|mbpp|code_eval|def \w{0,12}read_json",
        unless_in_file=r"```|fence|strip_code|extract_code",
        beside=rf"{GENERATES}|pred|answer|completion",
    ),
    Sign(
        "answers that are no valid JSON are skipped",
        r"^except\b.{0,80}:|^with suppress\(",
        beside_in_file=r"json\.loads\(",
    ),
    Sign(
        "rows whose answer can't be parsed are skipped",
        r"^if (?:not \w{1,30}|\w{1,30} is None|\w{1,30} == (?:None|''|\"\"|-1)"
        r"|m is None)\s*:( continue)?$|dropna\(|if \w{1,30}(?:\[[^\]]{1,20}\])? is not None\s*[\])]"
        r"|^except\b",
        beside_in_file=r"^continue$|: continue$|dropna\(|is not None\s*[\])]",
    ),
    Sign(
        "the score of extracted fields goes over those that the answer gives",
        rf"for \w{{1,12}}(?:, ?\w{{1,12}})? in \w{{0,12}}(?:{PREDICTED}|answer|got|found|extracted"
        r"|fields)\w{0,12}(?:\.items\(\)|\.keys\(\))?\s*(?:[:\])]|if)"
        r"|\bif \w{1,20} in (?:gold|ref|expected|truth)\b|set\(\w{0,10}pred\w{0,10}\)\s*&",
    ),
    Sign(
        "special tokens are in the answers",
        r"skip_special_tokens['\"]?\s*[=:]\s*(?i:false)|\bdecode\((?!.{0,200}skip_special_tokens)",
        beside_in_file=rf"{GENERATES}|vllm|tokenizer|\btok\b",
        unless_in_file=r"\.encode\(|b64decode|json\.JSONDecoder|skip_special_tokens\s*=\s*True",
    ),
)

_PROMPTS = (
    Sign(
        "the prompt was decoded with the answer|the prompt, with its options, is scored",
        r"decode\(|generated_text",
        beside_in_file=r"\.generate\(|pipeline\(",
        unless_in_file=r"shape\[-?1\]\s*:|\[\s*:\s*,\s*\w|\[\s*len\([^)]{0,40}\)\s*:|\b\w{0,12}(?:len|length"
        r"|start|width)\w{0,4}\s*:\s*\]|return_full_text\s*=\s*False"
        r"|removeprefix|\.split\(\s*['\"](?:<|\[|#|assistant|Answer|model)"
        r"|\.replace\(\s*\w{0,12}(?:prompt|text)|partition\(|Seq2Seq|ConditionalGeneration|vllm|\[n:\]"
        r"|size\(-?1\)\s*:",
    ),
    Sign(
        "evaluated without the chat template",
        r"^(?!.*apply_chat_template).*(?:\blm[-_]eval\b.{0,200}--tasks|\blm_eval\b.{0,200}--model"
        r"|simple_evaluate\(|\blighteval\b(?!.*chat).{0,200}(?:--tasks|accelerate|vllm))",
    ),
    Sign(
        "evaluated without the chat template|a chat model is asked with a bare text",
        r"\btok\w{0,12}\(\s*(?:f?['\"]|\w{0,12}(?:prompt|question|text|quer|input)|row\[|r\[|ex\[|\[)"
        r"|(?:llm|engine|model)\.generate\(\s*\w{0,12}(?:prompt|question|text)"
        r"|[^.]completions\.create\(|client\.completions|/v1/completions|generator\(|pipe\(",
        unless_in_file=r"apply_chat_template|role['\"]|chat\.completions|SequenceClassification"
        r"|TokenClassification|Seq2Seq|<\|im_start\|>|\[INST\]",
        beside_in_file=GENERATES,
    ),
    Sign(
        "text that the chat template made is tokenized with special tokens again",
        r"apply_chat_template\(.{0,200}tokenize\s*=\s*False"
        r"|apply_chat_template\((?!.{0,200}tokenize)(?=.{0,200}return_dict).{0,1}|\{\{-? ?bos_token",
        unless_in_file=r"add_special_tokens['\"]?\s*[=:]\s*False",
        beside_in_file=r"\b(?:self\.)?tok(?:enizer|en)?\(|\.encode\(|processor\(|llm\.generate\("
        r"|completions\.create",
    ),
    Sign(
        "long prompts are truncated on the right",
        r"truncation\s*=\s*(?:True|['\"])|truncate_prompt_tokens|(?:prompt|text|document"
        r"|doc|context|article)\w{0,8}\s*(?:\[['\"]\w{1,12}['\"]\])?\[:\s*\w{2,20}\]",
        unless=r"truncation_side",
        beside_in_file=GENERATES,
    ),
    Sign(
        "long prompts are truncated on the right",
        r"\b(?:max_model_len|max-model-len|num_ctx|ctx[-_]size|max_input_length"
        rf"|max_source_length){GIVEN}(?:\d{{3}}|1\d{{3}}|20\d\d)\b",
    ),
    Sign(
        "answers were cut off at max_new_tokens|a stop string ends answers",
        rf"{LIMIT_OF_ANSWER}{GIVEN}{FEW_TOKENS}",
        beside=r"(?i)boxed|####|answer is|final answer|<answer>|exact|\bgold|accuracy|expected|reference",
        unless=r"SFTTrainer\(|DPOTrainer\(",
    ),
    Sign(
        "a stop string ends answers",
        r"\b(?:stop|until|stop_strings|stop_sequences|stop_words|eos_string"
        r"|generation_stop)\b['\"]?\s*[=:]\s*.{0,60}(?:\\n|['\"][.\s]['\"]|###|Question|Q:|```)",
    ),
    Sign(
        "answers are sampled \\(do_sample=True",
        r"do_sample['\"]?\s*[=:]\s*(?i:true)|\btemperature['\"]?\s*(?:[=:]|\s)\s*['\"]?(?:0?\.[1-9]|1\b|1\.)",
        beside=rf"{SCORES}",
    ),
    Sign(
        "answers are sampled \\(do_sample=True",
        r"SamplingParams\((?!.{0,200}temperature)|completions\.create\((?!.{0,400}temperature)"
        r"|\.generate\((?!.{0,300}(?:do_sample|generation_config|num_beams|temperature|sampling|params"
        r"|\bsp\b|gen_kwargs|\*\*gen))",
        beside_in_file=SCORES,
        unless_in_file=r"do_sample|temperature|greedy",
    ),
    Sign(
        "a batch of prompts is padded on the right",
        r"padding\s*=\s*(?:True|['\"]longest|['\"]max_length)|pad_sequence\(|\.pad\(",
        unless=r"padding_side.{0,6}left|Seq2SeqLM|ConditionalGeneration|SequenceClassification",
        beside_in_file=r"\.generate\(|pipeline\(",
    ),
    Sign(
        "a prompt reaches the model with a placeholder",
        r"(?<![fF])['\"][^'\"]{0,200}\{(?:question|prompt|text|input|context|document|query|passage)\}",
        unless_in_file=r"\.format\(|\.replace\(|Template\(|format_map|PromptTemplate|%\s*\(",
    ),
    Sign(
        "the penalty on repetition",
        r"\b(?:repetition_penalty|repeat_penalty|repetition-penalty|repeat-penalty)['\"]?(?:\s*[=:]"
        r"|\s)\s*['\"]?(?:1\.(?:0[5-9]|[1-9])|[2-9])|no_repeat_ngram_size['\"]?\s*[=:]\s*[1-9]"
        r"|(?:presence|frequency)_penalty['\"]?\s*[=:]\s*(?:0\.[1-9]|[1-9])",
    ),
)

_TOKEN_METRICS = (
    Sign(
        "predictions and labels are shifted by one",
        GREEDY_LOGITS,
        unless_in_file=rf"{SHIFTED}|{NEXT_TOKEN}|Seq2SeqLM|ConditionalGeneration",
        beside_in_file=LANGUAGE_MODEL,
    ),
    Sign(
        "positions with the label -100|labels hold -100 and are decoded",
        r"(?:batch_)?decode\(\s*(?:\w{0,10}labels?\w{0,8}|refs?|references|targets?|tgt\w{0,6}"
        r"|p\.label_ids|\w{1,8}\.label_ids)",
        unless_in_file=MASKED,
    ),
    Sign(
        "positions with the label -100",
        rf"(?:==|!=)\s*\w{{0,12}}(?:label|target|tgt|y)\w{{0,12}}{ACCESS}|(?:accuracy|f1|precision"
        r"|recall)\w{0,10}(?:\.compute)?\(|label_ids",
        unless_in_file=rf"{MASKED}|{NEXT_TOKEN}",
        beside_in_file=GREEDY_LOGITS,
    ),
    Sign(
        "the metric scores logits over the reference",
        r"predict_with_generate['\"]?\s*[=:]\s*(?i:false)|(?i:load\(\s*['\"](?:\w{1,12}/)?(?:sacrebleu"
        r"|rouge|bleu|meteor|chrf|bertscore|ter|wer|cer)|rouge_scorer|sacrebleu|corpus_bleu"
        r"|exact_match)",
        unless=r"predict_with_generate['\"]?\s*[=:]\s*(?i:true)",
        beside_in_file=r"argmax\(|compute_metrics",
    ),
    Sign(
        "token accuracy is measured with the right tokens before",
        r"mean_token_accuracy|token_acc(?:uracy)?\b|next_token_acc",
    ),
    Sign(
        "token accuracy is measured with the right tokens before",
        GREEDY_LOGITS,
        unless_in_file=NEXT_TOKEN,
        beside_in_file=LANGUAGE_MODEL,
    ),
    Sign(
        "the options of a multiple choice are one token",
        r"(?:encode|tok\w{0,12}|__call__|convert_tokens_to_ids)\(\s*[^()]{0,40}\)(?:\.input_ids"
        r"|\[['\"]input_ids['\"]\])?\[-?[01]\]"
        r"|for \w{1,10} in (?:['\"]A ?B|[\[(]['\"] ?A['\"]|LETTERS|CHOICES|OPTIONS|letters|choices|options)",
        beside_in_file=r"(?i)tok|logits|encode",
    ),
    Sign(
        "logits are compared with a threshold for probabilities",
        r"\b\w{0,10}(?:logits?|outputs?|preds?|predictions|scores"
        r"|out)\w{0,8}(?:\.logits)?\s*>=?\s*(?:0?\.\d|thr)",
        unless_in_file=r"sigmoid|softmax|expit",
    ),
    Sign(
        "the score of the other class is taken",
        r"\[(?::|\.\.\.), ?0\]",
        beside_in_file=r"(?i)softmax|predict_proba|prob|roc_auc",
        unless_in_file=r"\.generate\(|input_ids\[:, ?0",
    ),
    Sign(
        "the area under a curve is computed from predicted classes",
        r"(?:roc_auc_score|average_precision_score|roc_curve|precision_recall_curve|auroc"
        r"|AUROC)\w{0,6}\(\s*[\w.\[\]'\"]{1,40},\s*[^)]{0,60}(?:pred|hat|cls|class|argmax|round|>"
        r"|decision|hard|label)",
        unless_in_file=r"roc_auc_score\([^)]{0,80}(?:prob|score|\[:, ?1\])",
    ),
    Sign(
        "predictions and true labels are given to a metric in each other's place",
        r"(?:accuracy_score|f1_score|precision_score|recall_score|precision_recall_fscore_support"
        rf"|classification_report|confusion_matrix|fbeta_score)\(\s*\w{{0,12}}(?:{PREDICTED}"
        r"|answers)\w{0,12}\s*,"
        rf"|(?:predictions|hypotheses|preds)\s*=\s*\w{{0,8}}{EXPECTED}\w{{0,8}}\b|(?:references|refs"
        rf"|labels|y_true|targets)\s*=\s*\w{{0,8}}{PREDICTED}\w{{0,12}}\s*[,)]"
        r"|\b(?:wer|cer|jiwer\.\w{1,10}|scorer\.score"
        rf"|score)\(\s*\w{{0,8}}{PREDICTED}\w{{0,12}}{ACCESS}\s*,",
    ),
    Sign(
        "a figure is called macro and averaged by micro",
        r"macro\w{0,12}['\"]?\]?\s*[=:].{0,100}(?:average\s*=\s*['\"](?:micro|weighted)"
        r"|accuracy_score)|micro\w{0,12}['\"]?\]?\s*[=:].{0,100}average\s*=\s*['\"]macro"
        r"|average\s*=\s*['\"](?:micro|weighted)|f1_score\((?!.{0,200}average)|average\s*=\s*['\"]macro",
    ),
    Sign(
        "one class is most of the rows",
        r"(?i)accuracy_score\(|average\s*=\s*['\"]macro|macro[-_ ]?f1|classification_report\("
        r"|\baccuracy\w{0,8}['\"]?\s*[=:]",
        unless=r"class_weight|WeightedRandomSampler|balanced_accuracy|pos_weight",
        beside=r"num_labels|SequenceClassification|TokenClassification|\bf1|['\"]label['\"]|LABELS"
        r"|CLASSES|\.label\b|confusion",
    ),
    Sign(
        "one class is nearly everything",
        r"seqeval|TokenClassification|['\"]B-[A-Z]|is_split_into_words|word_ids\(",
    ),
    Sign(
        "label names are exchanged between training and evaluation",
        r"list\(set\(|enumerate\(\s*(?:set\(|\{)|in set\(|list\(\s*\{[^{}:]{1,80}\bfor\b|\.unique\(\)"
        r"|for \w{1,12}, ?\w{1,12} in enumerate\(.{0,30}label|id2label|label2id|target_names\s*="
        r"|(?:label|class)(?:es|s|_names|_list)?\s*=\s*[\[(]\s*['\"]|(?:NAMES|LABELS"
        r"|CLASSES)\s*=\s*[\[{(]\s*['\"\d]|LabelEncoder\(|\.factorize\(|cat\.codes",
        beside_in_file=r"(?i)label|class",
        beside=r"(?i)accuracy|\bf1|classification|confusion|score",
    ),
    Sign(
        "the classifier's pad_token_id is not the id|a classifier's pad token is not the",
        r"SequenceClassification\w{0,8}\.from_pretrained\(|RewardTrainer\(|pad_token\s*=",
        unless=r"config\.pad_token_id\s*=|pad_token_id\s*=\s*\w{1,12}\.(?:pad|eos)",
        beside=r"SequenceClassification",
    ),
    Sign(
        "a classifier has one output",
        r"num_labels['\"]?\s*[=:]\s*1\b|Linear\([^)]{1,40},\s*1\)|problem_type.{0,6}regression",
    ),
)

_LIBRARIES = (
    Sign(
        "sacrebleu.corpus_bleu takes a list of reference streams",
        r"(?:corpus_(?:bleu|chrf|ter|score)|raw_corpus_bleu"
        r"|sentence_bleu)\(\s*[^()]{1,60},\s*[^\[()]{1,40}[,)]|corpus_\w{2,8}\([^,]{1,40},\s*\[\["
        r"|references\s*=\s*\[\[",
        unless_in_file=r"corpus_\w{2,8}\([^,]{1,60},\s*\[\w{1,20}\]",
    ),
    Sign(
        "ROUGE's default tokenizer deletes",
        r"(?i)rouge",
        unless=r"tokenizer\s*=\s*\w{1,30}[.)\s,].{0,40}rouge|RougeScorer\(.{0,80}tokenizer\s*="
        r"|rouge.{0,80}tokenizer\s*=|rouge_chinese|rouge_ja|jieba",
        beside="[\u0400-\u04ff\u0590-\u06ff\u0900-\u0e7f\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]"
        r"|(?i:japan|chinese|arabic|russian|korean|hindi|hebrew|greek|thai|ukrain|persian|\b(?:ja|zh"
        r"|ar|ru|ko|hi|he|th|fa|uk)\b)",
    ),
    Sign(
        "a perplexity that is the mean of exp",
        rf"(?:mean|append|\+=|sum|\bfor\b).{{0,80}}(?:{PERPLEXITY})|(?:{PERPLEXITY}).{{0,60}}(?:mean\("
        r"|\bfor\b)|\bp(?:pl|erplexit)\w{0,10}\s*\+=|mean\(\s*\w{0,8}p(?:pl|erp)|mean_perplexity"
        r"|sum\(\s*p(?:pl|erp)",
    ),
    Sign(
        "windows of a strided perplexity overlap",
        r"\bstride\b|range\(0,.{1,60},\s*\w{0,10}(?:step|stride|//\s*2)",
        unless_in_file=r"-100|trg_len|target_len",
        beside_in_file=PERPLEXITY,
    ),
    Sign(
        "labels of an own perplexity script are a copy|labels are padded with the pad token",
        r"\blabels?['\"]?\]?\s*[=:]\s*[\w.]{0,20}(?:\[['\"])?(?:input_ids|inputs?\b|ids\b|enc\w{0,8})"
        r"|padding_value\s*=.{0,30}pad_token_id",
        # `labels != -100` counts labels, and masks none
        unless_in_file=r"(?<!!= )(?<!== )(?<!ne\()-100|ignore_index|masked_fill",
        beside_in_file=r"padding|pad_",
    ),
    Sign(
        "a perplexity over other tokens",
        rf"(?:{PERPLEXITY})[^)]{{0,40}}(?i:loss|nll|neg|ce\b)|(?i:word|byte|token)_perplexity|\bp(?:pl"
        r"|erplexity)\w{0,8}\s*=",
    ),
    Sign(
        "the evaluation computes in float16",
        rf"fp16_full_eval|\.half\(\)|torch\.float16|dtype{GIVEN}(?:float16|half|fp16)\b|\bfp16{GIVEN}(?i:true)",
        beside=r"(?i)gemma|\b(?:m|flan-|u)?t5\b|t5-",
    ),
    Sign(
        "what the sandbox could not run counts as wrong",
        r"(?i)\btimeout\b\s*[=:]|--timeout|--n[_-]?workers|--parallel|signal\.alarm|timed out"
        r"|ModuleNotFoundError|evaluate_functional_correctness|evalplus|num_workers\s*=\s*\d{2}",
        beside=r"(?i)humaneval|mbpp|exec\(|sandbox|pass@|evalplus|subprocess|livecode|bigcode|code_eval",
    ),
    Sign(
        "the LLM judge prefers a place",
        r"(?i)\b(?:answer|assistant|response|model|output|reply)[ _]?\(?A\b|\[\[A\]\]|\[A\]|answer_a"
        r"|response_1|(?:first|1st) (?:answer|response)|output_1\b",
        unless=r"(?i)swap|flip|both orders|random\.(?:random|choice|shuffle|sample)|reversed\(|order in",
        beside=JUDGES,
    ),
    Sign(
        "the LLM judge prefers long answers",
        r"(?i)(?:judge|verdict|you are (?:an?|the) (?:\w{1,12} ){0,3}(?:judge|evaluator|grader|expert)"
        r"|rate the|which (?:answer|response|assistant) is better|alpaca_eval|mt[-_]?bench|arena)",
        unless=r"(?i)length[_ -]controlled|length_bias|lc_win",
    ),
    Sign(
        "requests to the judge that fail",
        r"^(?:return|\w{0,10}(?:score|rating|verdict|result)\w{0,6}\s*="
        r"|\w{1,20}\.append\()\s*\(?(?:[1-9]\d{0,2}(?:\.\d)?|0?\.5|['\"](?:tie|draw|C|A|B)['\"]|0)\)?$",
        beside_in_file=r"^except\b",
    ),
)

_ROWS_AND_COUNTS = (
    Sign(
        "answers are not in the order of the references",
        r"sort(?:ed)?\(.{0,80}len|\.sort\(|group_by_length|sort_by_len|as_completed\(|imap_unordered"
        r"|shuffle\s*=\s*True|\.shuffle\(|glob\(|os\.listdir\(|\.filter\(",
        unless_in_file=r"argsort|inverse|unsort|restore|original_(?:order|index)|\bidx\b|row_id|order\["
        r"|train_dataset|sorted\((?:glob|os)",
        beside_in_file=r"\bzip\(|\bzip_longest|predictions\[i\]|refs\[i\]|labels\[i\]",
    ),
    Sign(
        "answers are not in the order of the references",
        r"\bzip\(",
        beside_in_file=r"^continue$|: continue$|dropna|if .{1,40}\]$",
        unless_in_file=r"strict\s*=\s*True|row_id",
    ),
    Sign(
        "num_return_sequences gives several answers",
        r"num_return_sequences['\"]?\s*[=:]\s*(?:[2-9]|\d\d|k\b|args|n\b|cfg|\w*[A-Z])|best_of"
        r"|\bn\s*=\s*(?:[2-9]|\d\d)\b",
        unless_in_file=r"\.view\(|reshape\(|repeat_interleave|//\s*(?:k|n|num|\d)|\* ?(?:k|n|num_return)",
        beside_in_file=r"\.generate\(|SamplingParams|completions\.create",
    ),
    Sign(
        "a figure is divided by another count",
        rf"/=?\s*\(?\s*len\(\s*(?:self\.)?{LOADER}\)|loss\w{{0,12}}\s*/=?\s*len\(|\.dataset\)"
        r"|(?:correct|right|hits|acc)\w{0,10}\s*/\s*\w{0,10}(?:steps|batches)",
        beside_in_file=r"(?:correct|right|hits|loss|total|acc)\w{0,12}\s*\+=",
    ),
    Sign(
        "right answers are assigned and not added up",
        r"^\w{0,10}(?:correct|right|hits|n_ok|good|matches|acc)\w{0,8}\s*=\s*.{0,80}(?:=="
        r"|\.eq\().{0,80}(?:sum|mean)\(|^\w{0,10}(?:correct|right|hits|acc)\w{0,8}\s*=\s*(?:sum"
        r"|\()?\(?.{0,60}==",
        unless_in_file=r"(?:correct|right|hits|n_ok|good|matches)\w{0,8}\s*\+=|\.append\(|compute_metrics",
        beside_in_file=r"^for\b",
    ),
    Sign(
        "the loss of the evaluation depends on its batch size",
        rf"loss\w{{0,10}}\s*(?:\+=|/=?)\s*.{{0,40}}len\(\s*{LOADER}\)"
        r"|loss\w{0,8}\s*\+=\s*(?:\w{1,10}\.)?loss\w{0,4}\.item\(\)|mean\(\s*\w{0,12}loss"
        r"|loss\w{0,8}\.append\(",
        beside_in_file=rf"\b{HELD_OUT}|\.eval\(\)",
        unless_in_file=r"\* ?(?:n_tok|num_tokens|count|n\b|batch_size|len\()|(?:num_|n_)?tok\w{0,6}\s*\+=",
    ),
    Sign(
        "the loss of the evaluation depends on its batch size",
        r"eval_dataset\s*[=:]\s*\w{0,12}train|evaluate\(\s*\w{0,12}train",
    ),
    Sign(
        "the training loss is logged as the sum of the micro-batches|accumulates gradients and does"
        " not divide",
        r"\w{0,16}loss\w{0,10}\s*\+=\s*(?:\w{1,10}\.)?loss\w{0,6}(?:\.detach\(\))?\.item\(\)|\.backward\(\)",
        unless_in_file=r"loss\w{0,8}\s*/=?\s*\w|/ ?\w{0,12}(?:accum|acc_steps|ga\b|grad_acc)",
        beside_in_file=r"(?i)accum|% ?\w{1,12} ?== ?0",
    ),
    Sign(
        "the training loss is logged after it was divided",
        r"loss\w{0,8}\s*(?:=.{0,60}/|/=)\s*(?:\w{1,12}\.)?\w{0,12}(?i:accum|acc_steps|\bga\b|grad_acc"
        r"|micro|\bn\b)",
        unless_in_file=r"item\(\)\s*\*\s*\w{0,12}(?i:accum|acc|ga\b|n\b|micro)|loss\w{0,8}\s*\+=",
    ),
    Sign(
        "dropout is on in training alone",
        rf"(?i)\b\w{{0,16}}(?:dropout|pdrop|drop_rate)\w{{0,8}}{GIVEN}0?\.[1-9]|Dropout\(",
        beside=r"eval_loss|eval_dataset|eval_strategy|val_loss|validation",
    ),
    Sign(
        "model\\.eval\\(\\) is not called",
        r"(?:no_grad\(\)|inference_mode\(\))|def \w{0,12}(?:evaluate|validate|validation|test"
        r"|score)\w{0,12}\(",
        unless=r"\.eval\(\)|\.train\(False\)|[Tt]rainer\(|\.generate\(|validation_step|vllm|pipeline\(",
        beside_in_file=r"loss|logits|argmax",
    ),
)

_PROCESSES = (
    Sign(
        "the figure is that of one process",
        r"(?:rank|RANK)\w{0,8}\s*==\s*0|is_main_process|is_world_process_zero|is_local_main|rank_zero"
        r"|\bself\.log\((?!.{0,200}sync_dist\s*=\s*True).{0,20}(?:val|eval|test)|not rank\b",
        unless=r"all_reduce\(|gather_for_metrics|\.gather\(|all_gather|reduce\(|sync_dist\s*=\s*True",
        beside=PROCESSES,
    ),
    Sign(
        "every process writes its predictions to one file",
        r"open\([^)]{0,80}['\"](?:w|wt|wb|mode\s*=\s*['\"]w)['\"]|\.to_(?:json|csv|parquet)\("
        r"|json\.dump\(|write_text\(|unlink\(|os\.remove\(",
        unless_in_file=r"\{\w{0,10}rank|is_main_process|rank\w{0,4}\s*==\s*0|rank\)",
        beside=PROCESSES,
    ),
    Sign(
        "predictions are gathered process by process|answers are gathered process by process",
        r"\[\s*\w{0,12}(?:rank|process_index)\w{0,4}\s*::|gather_object\(|all_gather\w{0,12}\("
        r"|split_between_processes|\.shard\(|\.gather\(",
    ),
    Sign(
        "processes gather the rows that fill up",
        r"accelerator\.gather\(|\.gather\((?!_for)|all_gather\w{0,12}\(|DistributedSampler\("
        r"|gather_object\(|split_between_processes",
        unless=r"gather_for_metrics|use_distributed_sampler\s*=\s*False|drop_duplicates|seen\b|\[:len\(",
    ),
    Sign(
        "several runs write into one log",
        r"WANDB_RUN_ID|WANDB_RESUME|\bresume\s*=\s*['\"](?:must|allow|auto)"
        r"|wandb\.init\(.{0,200}\bid\s*=|SummaryWriter\(\s*['\"]|less than the current step"
        r"|logging_dir['\"]?\s*[=: ]|resume_from_checkpoint",
    ),
)

_MODELS = (
    Sign(
        "what is evaluated is not what is trained",
        rf"{LOADS_FROM_HUB}"
        r"|\blm[-_]eval\b.{0,120}pretrained=[A-Za-z][\w-]{1,30}/(?!.{0,200}peft=)"
        r"|pretrained=(?:Qwen|meta-llama|mistralai|google|microsoft|EleutherAI"
        r"|HuggingFaceTB)/(?!.{0,200}peft=)",
        unless_in_file=GIVES_ADAPTER,
    ),
    Sign(
        "what is evaluated is not what is trained",
        r"deepcopy\(|disable_adapter|set_adapter\(|eval_model\b|\bbase_model\s*=|evaluate\(\s*base"
        r"|load_state_dict\(.{0,80}strict\s*=\s*False|(?:ema|best|old|frozen)_?model\b",
    ),
    Sign(
        "what is evaluated is not what is trained",
        r"\.map\(.{0,200}(?:cache|load_from_cache)|\b(?:eval|evaluate|test)\w{0,10}\(\s*(?:base"
        r"|model)\b|\.evaluate\(\)",
        beside=r"eval_loss|evaluate",
    ),
    Sign(
        "both sets of answers come from one model",
        r"enable_lora|--enable-lora|completions\.create\(.{0,200}\bmodel\s*="
        r"|['\"]model['\"]\s*:\s*['\"]|--lora-modules|\bLLM\(\s*['\"]",
        unless=r"lora_request|LoRARequest",
        beside=rf"{GENERATES}|lora|/v1",
    ),
    Sign(
        "what was evaluated is not what is deployed",
        r"(?i)\bI?Q[2-8]_[01K]\w{0,3}|q[2-8]_[01k]\w{0,3}\b|llama-quantize|\.gguf|AWQ|GPTQ"
        r"|load_in_4bit|load_in_8bit|--quantization",
        beside=r"(?i)gguf|ollama|llama[-_.]?cpp|awq|gptq|Modelfile|merge_and_unload|vllm",
    ),
    Sign(
        "the script loads a path that is written in it",
        r"Model\w{0,30}\.from_pretrained\(\s*(?:f?['\"]|(?!BASE)[A-Z_]{3,20}\s*[,)])"
        r"|\bLLM\(\s*(?:model\s*=\s*)?(?:['\"]|[A-Z_]{3,20}\s*[,)])|pretrained=[\w/.-]{3,80}"
        r"|torch\.load\(\s*['\"]",
        beside_in_file=r"add_argument\(\s*['\"]-{0,2}\w{0,10}(?:ckpt|model|check|adapter|path|step|weights)"
        r"|sys\.argv|\$\{?1\b",
        unless_in_file=r"\b(?:args|opt|cfg|conf|a|ns|options|flags|FLAGS|hparams|opts)\.\w{0,10}(?:ckpt|model"
        r"|check|adapter|path|step|weights)",
    ),
    Sign(
        "answers are read from a file of an earlier model",
        r"(?:exists|is_file)\(|if not \w{0,10}(?:overwrite|force)|\[ ! -[fes] |load_from_disk\("
        r"|pickle\.load|lru_cache|Memory\(|--use_cache|diskcache|if .{0,40} in cache",
        beside=rf"{GENERATES}|lm_eval|(?i:pred|answers|outputs)",
    ),
    Sign(
        "the fine-tuning took away what the base could",
        rf"\b(?:num_(?:train_)?epochs|max_epochs|epochs){GIVEN}(?:[4-9]|\d\d)(?:\.\d)?\b"
        rf"|\b(?:learning_rate|lr|learning-rate){GIVEN}(?:[2-9](?:\.\d{{1,3}})?[eE]-0?4"
        r"|\d(?:\.\d{1,3})?[eE]-0?[1-3]|0\.00[0-9]*[1-9]|0\.000[2-9])",
        beside=r"(?i)mmlu|lm[-_]eval|hellaswag|arc_|gsm8k|ifeval|benchmark|lighteval|opencompass"
        r"|truthfulqa|humaneval",
    ),
    Sign(
        "two models were measured in two ways",
        r"--limit\b|--num_fewshot|\bnum_fewshot\b|\blimit\s*=\s*\d|max_samples|--apply_chat_template"
        r"|--fewshot_as_multiturn|n-?shot",
        beside=r"(?i)lm[-_]eval|lighteval|simple_evaluate|opencompass|harness|evaluate|eval",
    ),
    Sign(
        "the losses of two runs are means over different tokens",
        r"\b(?:assistant_only_loss|completion_only_loss|train_on_inputs?|train_on_prompt"
        rf"|label_smoothing\w{{0,8}}|train_on_responses_only|mask_history|neftune\w{{0,12}}){GIVEN}"
        r"|train_on_responses_only\(|DataCollatorForCompletionOnlyLM|--(?:assistant"
        r"|completion)_only_loss",
    ),
    Sign(
        "packed rows are longer and hold other contexts",
        rf"\b(?:eval_)?(?:sample_)?packing{GIVEN}(?i:true)|--packing|\bpacked{GIVEN}(?i:true)"
        rf"|neat_packing{GIVEN}(?i:true)",
        unless=rf"eval_(?:sample_)?packing{GIVEN}(?i:false)",
    ),
    Sign(
        "the best model is chosen in the wrong direction|the worst checkpoint is kept"
        "|the checkpoint kept as the best is the worst|a script keeps its worst checkpoint"
        "|the best model is to be|load_best_model_at_end is set, but checkpoints",
        r"greater_is_better|metric_for_best_model|ModelCheckpoint\(|EarlyStopping\("
        r"|\bmode\s*=\s*['\"](?:min|max)|^if .{0,60}[<>]=? ?\w{0,8}best|^best\w{0,12}\s*="
        r"|load_best_model_at_end",
    ),
)

_LABELS = (
    Sign(
        "the rows of the evaluation are labelled in another way|^training and evaluation compute the loss over",
        rf"\b{HELD_OUT}\w{{0,20}}\s*=.{{0,80}}\.map\("
        rf"|\b{HELD_OUT}\w{{0,20}}['\"]?\s*[=:]\s*\w{{0,20}}(?:Dataset|encode|tokeni[sz]e"
        rf"|collat)\w{{0,12}}\(|\b(?:train_on_inputs?|train_on_prompt|mask_prompt|mask_inputs){GIVEN}",
        unless_in_file=r"DatasetDict|data\.map\(|\bds\.map\(",
    ),
    Sign(
        "the rows of the evaluation are labelled in another way|^training and evaluation compute the loss over",
        r"\blabels?['\"]?\]?\s*[=:]\s*[\w.\[\]'\"]{0,30}(?:input_ids|ids)\b['\"\]]{0,3}(?:\.copy\(\)"
        r"|\.clone\(\)|\[:\]|\s*$|\s*[,}])|list\(\w{0,10}(?:input_)?ids\)",
        beside=r"-100|completion_only|train_on",
    ),
    Sign(
        "each row is mostly a text that is the same in all",
        rf"(?i:train_on_inputs?|train_on_prompt){GIVEN}(?i:true)|(?i:completion_only_loss"
        rf"|assistant_only_loss|mask_prompt){GIVEN}(?i:false)",
    ),
    Sign(
        "each row is mostly a text that is the same in all",
        r"role['\"]\s*:\s*['\"]system|\bSYSTEM\w{0,10}\s*=",
        beside_in_file=r"SFTTrainer|SFTConfig|[Tt]rainer\(|labels|stage:",
        unless=r"-100|assistant_only_loss['\"]?\s*[=:]\s*(?i:true)|train_on_responses_only"
        r"|DataCollatorForCompletionOnlyLM|train_on_inputs\s*:\s*false"
        r"|completion_only_loss['\"]?\s*[=:]\s*(?i:true)",
    ),
    Sign(
        "rows of the evaluation without a label|no token of the evaluation rows has a label",
        r"\b(?:max_(?:seq_|sequence_)?len(?:gth)?|cutoff_len|sequence_len|block_size"
        rf"|model_max_length){GIVEN}\d{{2,3}}\b(?!\d)",
        beside=r"-100|completion_only|assistant_only|train_on_(?:inputs|responses|prompt)"
        r"|eval_loss['\"]?\s*[:=]\s*['\"]?(?i:nan)|\bval\w{0,6}",
    ),
    Sign(
        "rows of the evaluation without a label|no token of the evaluation rows has a label|the"
        " evaluation gives no loss",
        r"(?:eval|val|validation)\w{0,3}[_/ ]?loss['\"]?\s*[:=]?\s*['\"]?(?i:nan)\b|(?:eval"
        r"|val)_loss['\"]?\s*[:=]\s*['\"]?0\.0\b",
    ),
)

_REWARDS = (
    Sign(
        "the references of a reward are taken by their position|a reward function picks the"
        " reference from a list",
        r"enumerate\(\s*completions|zip\(\s*completions|\b[A-Z_]{3,20}\[(?:i|idx|n|k|j)\]"
        r"|range\(len\(completions",
        beside_in_file=r"completions",
    ),
    Sign(
        "the references of a reward are taken by their position|a reward function uses a completion as a string",
        r"re\.\w{1,10}\([^)]{0,80}\b(?:completion|c|comp|response|answer)\b|\b(?:completion|comp"
        r"|c)\.(?:strip|split|lower|find|startswith|count|endswith)\(|\bin (?:completion|comp"
        r"|c)\b\s*(?:else|for|:|\)|and|or)|len\((?:completion|c|comp)\)",
        beside_in_file=r"completions",
        unless_in_file=r"\[0\]\[['\"]content|\[-1\]\[['\"]content|isinstance\(",
    ),
)

SIGNS: tuple[Sign, ...] = (
    *_LEAKS,
    *_PARSERS,
    *_PROMPTS,
    *_TOKEN_METRICS,
    *_LIBRARIES,
    *_ROWS_AND_COUNTS,
    *_PROCESSES,
    *_MODELS,
    *_LABELS,
    *_REWARDS,
)
