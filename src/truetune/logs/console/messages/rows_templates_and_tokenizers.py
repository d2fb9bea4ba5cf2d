"""Known messages about rows, columns, templates and tokenizers."""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "longer-than-the-model",
        "a text is longer than the model has positions",
        r"Token indices sequence length is longer than the specified maximum sequence length",
        "texts are tokenized whole and cut later (then it is harmless), or never; or"
        " model_max_length in tokenizer_config.json is smaller than the model's own limit",
        "count what a cut loses with `truetune check DATA -t TOKENIZER --max-length N`; N is at"
        " most the model's max_position_embeddings",
        "transformers/tokenization_utils_base.py",
        shown="notice",
        severity="info",
    ),
    define_message(
        "chat-template-missing",
        "the tokenizer has no chat template",
        r"chat_template is not set|no template argument was passed|does not have a chat template"
        r"|No chat template is (?:defined|set)|default chat template is no longer",
        "a base model's tokenizer; a template that was not saved with the checkpoint; or the slow"
        " tokenizer of a fast one",
        "take the template of the instruct model of the same family: tokenizer.chat_template = "
        "other.chat_template, and check it with `truetune check DATA -t TOKENIZER --template FILE`",
        "transformers/tokenization_utils_base.py",
    ),
    define_message(
        "chat-template-refuses",
        "the chat template raises an error on a row",
        r"jinja2\.exceptions\.\w+|TemplateError|UndefinedError|Conversation roles must alternate"
        r"|System role not supported|After the optional system message, conversation roles must"
        r" alternate"
        r"|Only user(?:,| and) assistant",
        "a system turn, two turns of one role, a null content, or tool calls in a form that this"
        " template does not take",
        "`truetune check DATA -t TOKENIZER` names the rows and what the template says; `truetune"
        " fix DATA -o FIXED` corrects what is mechanical",
        "transformers/utils/chat_template_utils.py",
        "huggingface/alignment-handbook#93",
    ),
    define_message(
        "no-pad-token",
        "the tokenizer has no pad token",
        r"does not have a (?:padding|pad) token|Asking to pad but the tokenizer|pad_token_id (?:is"
        r"|must be) (?:None|set|defined)|Cannot handle batch sizes > 1 if no padding token",
        "a base model of the Llama, GPT-2 or Mistral family",
        "do not take the EOS where labels are masked by id: `truetune check TOKENIZER` names a free"
        " token of the family (<|finetune_right_pad_id|>, <unk>, a reserved one)",
        "transformers/tokenization_utils_base.py",
        "huggingface/transformers#22312",
    ),
    define_message(
        "column-missing",
        "a column that the trainer reads is not in the rows, or was removed",
        r"No columns in the dataset match the model's forward|KeyError:"
        r" '(?:text|messages|prompt|completion"
        r"|chosen|rejected|input_ids|labels|conversations|instruction|input|output|content|role|from|value"
        r"|attention_mask|label|response)'|Column(?:\(s\))? .{1,120} (?:not in|do(?:es)? not"
        r" exist|doesn't exist)"
        r"|(?:dataset|example)s? (?:must|should) (?:have|contain)"
        r" .{0,60}(?:column|field|key)s?|CastError"
        r"|column names don't match",
        "other names than the trainer expects; remove_unused_columns; files of different columns"
        " read as one",
        "`truetune check DATA` names the columns and what they are taken for; rename them, or name"
        " them with --map",
        "transformers/trainer.py",
        "datasets/table.py",
        "trl/data_utils.py",
    ),
    define_message(
        "no-loss-returned",
        "the model got no labels, so it gives no loss",
        r"did not return a loss from the inputs|'NoneType' object has no attribute 'backward'|loss"
        r" is None",
        "rows without labels and a collator that makes none (DataCollatorWithPadding,"
        " default_data_collator); or your own compute_loss",
        "DataCollatorForLanguageModeling(tokenizer, mlm=False) for plain text, or rows with labels"
        " (`truetune encode DATA -t TOKENIZER -o encoded`); `truetune lint SCRIPT`",
        "transformers/trainer.py",
    ),
    define_message(
        "empty-data",
        "there is no row to train on",
        r"num_samples should be a positive integer value, but got num_samples=0|iteration over"
        r" a 0-d"
        r"|Instruction \".{1,80}\" corresponds to no data|Dataset is empty|[Tt]rain(?:ing)? dataset"
        r" is empty"
        r"|There seems (?:to be not|not to be) a single sample|range\(\) arg 3 must not be zero"
        r"|No \(supported\) data files|doesn't contain any data files|train_dataset`? is required",
        "a filter (length, missing fields) that drops every row; a wrong path, split or format;"
        " packing of fewer tokens than one block",
        "`truetune check DATA -t TOKENIZER --max-length N` says how many rows there are and what is"
        " dropped",
        "torch/utils/data/sampler.py",
        "transformers/trainer.py",
        "datasets/exceptions.py",
    ),
    define_message(
        "rows-of-mixed-types",
        "the files of a data set do not agree on columns or types",
        r"ArrowInvalid|ArrowTypeError|DatasetGenerationError|DatasetGenerationCastError|JSON parse"
        r" error"
        r"|Could not convert .{1,80} with type|An error occurred while generating the dataset"
        r"|Expected bytes, got a '\w+' object|JSONDecodeError|pyarrow\.lib\.Arrow\w+|Couldn't cast"
        r" array of type"
        r"|Error tokenizing data",
        "a field that is text in one row and a list or a number in another; a broken line; files of"
        " different columns",
        "`truetune check DATA` names the lines; `truetune fix DATA -o FIXED` corrects what is"
        " mechanical",
        "datasets/packaged_modules/json/json.py",
        "datasets/exceptions.py",
    ),
    define_message(
        "text-that-is-no-text",
        "a row holds a number, a list or nothing where text is needed",
        r"InputSequence must be|TextEncodeInput must be Union|text input must (?:be )?of type `str`"
        r"|expected string or bytes-like|can only concatenate str \(not|'NoneType' object is not"
        r" (?:subscriptable"
        r"|iterable)|sequence item \d+: expected str|must be str, not"
        r" (?:NoneType|float|int|list|dict)"
        r"|'float' object has no attribute '(?:strip|split|lower|replace)'",
        "null or NaN cells (pandas reads an empty cell as a float), numbers, or lists of messages"
        " as text",
        "`truetune check DATA` names the rows; `truetune fix DATA -o FIXED` corrects them",
        "transformers/tokenization_utils_base.py",
        "Lightning-AI/litgpt#1759",
        "huggingface/transformers#21366",
    ),
    define_message(
        "not-utf-8",
        "a file is in another encoding than UTF-8",
        r"UnicodeDecodeError|codec can't (?:decode|encode)|invalid start byte",
        "Windows-1252, UTF-16, or bytes that were cut within a character",
        "`truetune check DATA` names the line; convert it: `iconv -f WINDOWS-1252 -t UTF-8 IN >"
        " OUT`",
        "docs.python.org/3/library/exceptions.html#UnicodeDecodeError",
    ),
    define_message(
        "tokenizer-forked",
        "the tokenizer's threads were stopped by a fork",
        r"(?:huggingface/tokenizers: )?[Tt]he current process just got forked, after parallelism"
        r" has already "
        r"been used",
        "a DataLoader's workers or dataset.map start after the tokenizer was used: harmless, but"
        " tokenizing in workers is slower; a hang here is another matter",
        "export TOKENIZERS_PARALLELISM=false",
        "huggingface/tokenizers bindings/python/src/lib.rs",
        "huggingface/transformers#5486",
        shown="notice",
        severity="info",
    ),
    define_message(
        "right-padding-at-generation",
        "a batch of prompts is padded on the right, so the model continues padding",
        r"A decoder-only architecture is being used, but right-padding was detected",
        "the tokenizer's padding_side is right, which is for training",
        "tokenizer.padding_side = 'left' before generate(); `truetune lint SCRIPT` finds the place",
        "transformers/generation/utils.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "attention-mask-not-set",
        "generate() was given no attention mask, and could not infer one",
        r"The attention mask (?:and the pad token id were|is) not set",
        "model.generate(input_ids) instead of model.generate(**inputs): harmless for one prompt,"
        " wrong for a padded batch",
        "pass attention_mask (model.generate(**inputs)); `truetune lint SCRIPT`",
        "transformers/generation/utils.py",
        shown="notice",
        severity="info",
    ),
    define_message(
        "pad-token-of-generation",
        "generate() pads with the stop token, because no pad token is set",
        r"Setting `pad_token_id` to `eos_token_id`",
        "the tokenizer or generation_config.json has no pad token. It is harmless: answers that end"
        " early are padded with the stop token",
        "to silence it, set model.generation_config.pad_token_id = tokenizer.pad_token_id (or the"
        " stop token's id)",
        "transformers/generation/utils.py",
        shown="notice",
        severity="info",
    ),
    define_message(
        "stop-token-not-supervised",
        "the end of the turn is not learned, so that answers may never stop",
        r"(?:The chat template )?does not include the assistant turn's end-of-turn token in the"
        r" loss mask",
        "the template's generation tags end before the stop token",
        "use a template whose {% generation %} holds the stop token; `truetune check DATA -t"
        " TOKENIZER` proves what is supervised",
        "trl/trainer/sft_trainer.py",
        shown="notice",
    ),
)
"""By how special they are"""
