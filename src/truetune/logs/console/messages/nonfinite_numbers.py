"""Known messages about losses, gradients and numbers that are not finite."""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "sampling-from-nan",
        "the model gives logits that are not finite, so nothing can be sampled",
        r"probability tensor contains either `inf`, `nan` or element < 0",
        "weights with NaN (a run that diverged, a broken merge), a model trained in bfloat16 used"
        " in float16, or a row of padding alone",
        "`truetune check CHECKPOINT` finds weights that are not finite; load in bfloat16; pad on"
        " the left for generation",
        "aten/src/ATen/native/Distributions.cpp",
        "meta-llama/llama#380",
    ),
    define_message(
        "loss-scale-at-minimum",
        "the loss scale fell to its minimum: gradients overflow in float16 at every step",
        r"Current loss scale already at minimum|loss scale.{0,40}(?:at minimum|below)"
        r"|FloatingPointError: Minimum loss scale",
        "activations or gradients beyond float16's range: models trained in bfloat16 (T5, Gemma,"
        " Llama, Qwen), a learning rate that is too high, or NaN in the data's loss",
        "train in bf16 (bf16=True, fp16=False); `truetune diagnose RUN` shows the step from which"
        " the loss is not finite",
        "deepspeed/runtime/fp16/loss_scaler.py",
    ),
    define_message(
        "loss-is-nan",
        "the loss is not a number",
        r"(?:[Ll]oss|[Gg]radients?|[Gg]rad norm) (?:is|are|was|became|contains?) (?:nan|NaN|inf|not"
        r" finite"
        r"|infinite)|Function '\w+' returned nan values|nan (?:loss|values)"
        r" (?:detected|encountered)"
        r"|NaN or Inf found in",
        "float16 with a model made for bfloat16; a learning rate that is too high; rows without a"
        " supervised token, whose mean is 0/0",
        "count rows without a supervised token with `truetune check DATA -t TOKENIZER`; train in"
        " bf16; a tenth of the learning rate; `truetune diagnose RUN` names the first step",
        "torch/csrc/autograd/engine.cpp",
        "huggingface/transformers#14189",
    ),
    define_message(
        "all-labels-masked",
        "no token is supervised: all labels are -100",
        r"[Aa]ll labels in your dataset are -100|(?:[Ll]oss|[Aa]ssistant|label)[ _]masks? (?:is"
        r"|are) all (?:zeros?|0|masked)|all (?:labels|tokens) (?:are|were) masked|no (?:valid"
        r"|supervised) (?:labels|tokens|targets)|[Mm]ost labels in your dataset are -100"
        r"|All assistant masks are zero",
        "the marker of the response (instruction_part, response_template) is not in the rendered"
        " text, often because the template was changed or tokens merge with their neighbours; or"
        " answers are past max_length",
        "see what is supervised with `truetune show DATA -t TOKENIZER`, and count it with `truetune"
        " check DATA -t TOKENIZER --max-length N`",
        "unslothai/unsloth#3198",
        "unslothai/unsloth#2117",
        "unslothai/unsloth#3323",
    ),
    define_message(
        "response-marker-tokenized-otherwise",
        "the rows contain the marker of the answer, but their tokens do not: these rows train nothing",
        r"Could not find (?:response|instruction) key `(?P<marker>[^`]{2,200})` in (?:the )?following instance:"
        r".{0,4000}(?P=marker)",
        "alone, the marker has other tokens than after a line break or a space (SentencePiece, Llama 2 and Mistral"
        " above all), and the collator compares tokens. Rows in which it is not found are ignored: where all are,"
        " loss and gradients are 0",
        "give the collator the marker's token ids as they are in context:"
        ' tokenizer.encode("\\n### Response:", add_special_tokens=False)[2:] (this drops the line break); or'
        " prompt and completion columns with completion_only_loss=True, or messages with assistant_only_loss=True,"
        " in a newer TRL, which need no marker",
        "huggingface/transformers#27733",
        "huggingface/trl#588",
        shown="notice",
    ),
    define_message(
        "all-labels-masked-warned",
        "rows without a supervised token",
        r"(?:Unsloth: )?(?:Most|All) labels in your dataset are -100|Could not find (?:response key"
        r"|instruction key|the (?:assistant )?response)|(?:[Tt]he |All )?(?:[Ll]oss|[Aa]ssistant"
        r"|[Ll]abel)[ _]masks? (?:is|are) all (?:zeros?|0)",
        "the marker of the response is not in the rendered text, or its tokens merge with their neighbours; or"
        " answers are past max_length. Such rows teach nothing, or give NaN",
        "see what is supervised with `truetune show DATA -t TOKENIZER`, and count it with `truetune"
        " check DATA -t TOKENIZER --max-length N`",
        "unslothai/unsloth#1128",
        "huggingface/trl#588",
        shown="notice",
    ),
    define_message(
        "no-gradient",
        "the loss does not depend on any trainable weight",
        r"does not require grad and does not have a grad_fn",
        "all weights are frozen (an adapter loaded without is_trainable=True, peft in inference"
        " mode); gradient checkpointing with a frozen embedding; or the loss was computed under"
        " no_grad or detached",
        "model.enable_input_require_grads() with gradient checkpointing and LoRA (or"
        " use_reentrant=False); `truetune lint SCRIPT` finds adapters loaded frozen; `truetune run"
        " -- CMD` counts what is trained",
        "torch/csrc/autograd/autograd.cpp",
        "huggingface/peft#137",
    ),
    define_message(
        "checkpointing-without-gradient",
        "checkpointed layers get inputs without gradients, so that nothing below them is trained",
        r"None of the inputs have requires_grad=True\. Gradients will be None",
        "gradient checkpointing with LoRA: the embedding is frozen, and the reentrant kind needs an"
        " input that requires a gradient",
        "gradient_checkpointing_kwargs={'use_reentrant': False}, or"
        " model.enable_input_require_grads(); prove it with `truetune run -- CMD`, which names"
        " weights without gradients",
        "torch/utils/checkpoint.py",
        "huggingface/transformers#26377",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "unscale-fp16",
        "mixed precision in float16 is given weights that are float16 themselves",
        r"Attempting to unscale FP16 gradients|No inf checks were recorded",
        "the model was loaded with dtype=torch.float16 and trained with fp16=True: trainable"
        " weights must be float32 there",
        "load with dtype=torch.float32 (or train in bf16); with LoRA cast the adapter: `for p in"
        " model.parameters(): if p.requires_grad: p.data = p.data.float()`; `truetune check"
        " SETTINGS` finds the pair",
        "torch/amp/grad_scaler.py",
        "huggingface/transformers#23165",
    ),
    define_message(
        "backward-twice",
        "the graph of a loss was used a second time",
        r"Trying to backward through the graph a second time|modified by an inplace operation",
        "a loss that is kept and added over steps; states carried from batch to batch; an in-place"
        " change of a tensor that backward needs",
        "add loss.item() or loss.detach() where losses are summed; `truetune lint SCRIPT` checks"
        " hand-written loops",
        "torch/csrc/autograd/saved_variable.cpp",
    ),
    define_message(
        "recomputed-values-differ",
        "gradient checkpointing recomputed other tensors than it saved",
        r"Recomputed values for the following tensors|A different number of tensors was saved",
        "use_cache=True, dropout or randomness inside a checkpointed layer, or layers that change"
        " between the two passes",
        "set model.config.use_cache=False; use_reentrant=True as a trial; prove it with `truetune"
        " run --laws all -- CMD`",
        "torch/utils/checkpoint.py",
    ),
    define_message(
        "unused-parameters",
        "some trainable weights take no part in the loss",
        r"Expected to have finished reduction in the prior iteration|find_unused_parameters=True",
        "weights that this batch does not use: a vision tower for rows of text, experts without"
        " tokens, heads that are not called",
        "freeze what is not trained, or let DDP look for them: ddp_find_unused_parameters=True of"
        ' TrainingArguments, Trainer(strategy="ddp_find_unused_parameters_true") of Lightning,'
        " find_unused_parameters=True of DDP itself; `truetune lint SCRIPT` finds layers that no"
        " batch or some batches use, `truetune run -- CMD` names weights that get no gradient",
        "torch/csrc/distributed/c10d/reducer.cpp",
    ),
    define_message(
        "marked-ready-twice",
        "a weight was used twice in one step under DDP",
        r"Expected to mark a variable ready only once",
        "reentrant gradient checkpointing together with find_unused_parameters or shared weights",
        "gradient_checkpointing_kwargs={'use_reentrant': False}, and"
        " ddp_find_unused_parameters=False",
        "torch/csrc/distributed/c10d/reducer.cpp",
        "huggingface/transformers#23018",
    ),
)
"""By how special they are"""
