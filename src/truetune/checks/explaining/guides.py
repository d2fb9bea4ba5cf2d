"""The table of guides on symptoms: what users see, in their words, the causes, and the command to
begin with.

A guide is a page in docs/; what stands here lets `truetune explain` find it, and says the first command where the
documents are missing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause of a symptom. A search finds its rules by the same words: a rule's page says what is wrong in code or
    data, and users know only what they see."""

    text: str
    seen: str
    """What tells it from the other causes, in the words of users"""
    rules: tuple[str, ...] = ()
    """Those that prove it"""


@dataclass(frozen=True, slots=True)
class Guide:
    """One symptom."""

    name: str
    """The page's name, and what `truetune explain` takes"""
    page: str
    """Below docs/"""
    title: str
    asked: tuple[str, ...]
    """How users say it"""
    command: str
    """What to run first"""
    causes: tuple[Cause, ...]
    """In order of likelihood"""


FORM_REWARD = Cause(
    "the reward pays for the form alone, or the form pays far more than the right result: add a reward for the"
    " result, and set reward_weights so that it is most of the sum",
    "grpo reward 0.98 and still rising, or total reward goes up, and the model solves fewer problems, test accuracy"
    " falls or is flat; format reward, reward hacking",
    ("reward-reads-another-form",),
)
NO_ANSWER_TOKEN = Cause(
    "no token of the answers is left in the loss: the prompts fill max_length and the answers are cut off, or all of"
    " the completion is masked. Raise max_length, or shorten or leave out long prompts",
    "logps/chosen and logps/rejected are exactly 0.0, logps are 0 or zero; loss stays 0.6931; long prompts, long texts,"
    " max_length 512 or max_prompt_length",
    ("preference-pairs-identical", "dpo-stuck-at-ln2", "truncation-leaves-no-label"),
)
"""Log probabilities are sums over the answer's tokens: exactly 0 is the sum of none"""

PATTERN_MISSES_FORM = Cause(
    "a pattern of the reward does not match the form that the prompt asks for: without re.DOTALL its dot"
    " ends at a line break, and ^ and $ leave no text around it",
    "grpo: format reward and accuracy reward are both 0 from the first step, although the completions"
    " look right; <think> and <answer> stand on lines of their own; loss 0.0",
    ("reward-reads-another-form",),
)
EQUAL_REWARDS = Cause(
    "all answers of a group get the same reward, so that their advantages are 0: groups of one answer"
    " (num_generations, rollout.n), greedy sampling, answers that are cut off before their result, or a"
    " reward function that never pays",
    "grpo or rloo: the reward does not rise, advantages are 0, grad_norm 0.0, reward_std 0,"
    " frac_reward_zero_std 1; the model does not change",
    ("no-reward-signal", "reward-is-never-given"),
)

SHARDED_OVER_NODES = Cause(
    "FULL_SHARD or ZeRO-3 over several nodes gathers each layer over the network, in both passes: HYBRID_SHARD (or the"
    " hpz partitions of ZeRO++) shards inside of a node",
    "adding more nodes makes my FSDP run slower with every node; fsdp_sharding_strategy FULL_SHARD, num_machines 4",
    ("gradients-cross-a-slow-network",),
)
"""It is slow, and it is of several GPUs"""

GUIDES = (
    Guide(
        "garbage-output",
        "guides/garbage-output.md",
        "The model answers garbage",
        ("output is gibberish", "garbage after fine-tuning", "repeats the question", "answers are nonsense",
         "model outputs random tokens", "wrong language", "empty answers", "worse than the base model"),
        "truetune sample RUN --diagnose",
        (
            Cause("the prompt differs from the one in training",
                  "good answers in training's format only; ignores instructions; repeats or copies the user's message",
                  ("prompt-is-not-the-trained-one", "answers-echo-the-prompt", "server-builds-another-prompt")),
            Cause("the answers were not what was supervised", "answers look like prompts, headers or another"
                  " column; prompts are trained too",
                  ("prompt-supervised", "another-field-supervised")),
            Cause("a hand-written attention mask has no causal part, so that the training could copy its targets",
                  "the loss falls to almost zero and the model writes word salad; own packing code, 4D mask",
                  ("mask-without-causality", "shortcut-loss")),
            Cause("the weights are not those that were trained: saved too early, damaged, an adapter on another base",
                  "random tokens, worse than the base model, adapter merged or loaded wrongly",
                  ("no-language-left", "worse-than-its-base", "adapter-on-another-base",
                   "script-puts-adapter-on-another-base")),
            Cause("the learning rate destroyed the weights",
                  "the loss climbed above guessing before, or diverged in the warm-up; `the the the`, commas alone",
                  ("loss-climbs-above-guessing", "loss-diverges", "steps-larger-than-the-weights")),
            Cause("the answers are drawn at a high temperature", "good greedily, nonsense when sampled",
                  ("temperature-is-too-high",)),
            Cause("the tokenizer is not the model's", "words and symbols without relation",
                  ("tokenizer-differs-from-base", "model-and-tokenizer-pad-ids-differ")),
            Cause("the base is broken", "the base model answers garbage too", ("base-is-broken",)),
            Cause("marks of the chat template were never trained: a base model (Llama 3) with the template of its "
                  "instruct "
                  "model, or added tokens, under LoRA without modules_to_save",
                  "assistantassistant, foreign words or symbols where the tags, eot_id or special tokens should be; "
                  "base "
                  "model tuned by QLoRA",
                  ("new-tokens-left-untrained", "base-model-special-tokens-untrained", "added-tokens-left-frozen")),
            Cause("tokens that the training added are not in the tokenizer that asks: it is loaded from the base",
                  "markers are cut into pieces; special tokens were added and embeddings resized in the training "
                  "script only, inference loads the base tokenizer",
                  ("tokens-added-at-training-only",)),
            Cause("the roles are exchanged: the question is the assistant's and the answer the user's",
                  "the model asks questions back, complains like a customer, answers as the user",
                  ("roles-exchanged", "roles-exchanged-in-code")),
            Cause("activations overflow in float16: a bfloat16 model loaded as float16, most of all Gemma and T5",
                  "only exclamation marks !!!!, empty or pad tokens, nan or inf logits; on a T4 or V100 in half "
                  "precision",
                  ("bf16-model-run-in-fp16", "server-casts-to-float16", "activations-leave-fp16",
                   "loss-or-gradient-exactly-zero")),
            Cause("batches of prompts are padded on the right",
                  "only one prompt of a batch is answered well; a single question alone is fine, batched answers are "
                  "broken",
                  ("right-padding-at-generation", "padded-batch-answers-otherwise")),
            Cause("apply_chat_template was called without add_generation_prompt=True: the prompt ends before"
                  " the header of"
                  " the answer, and the model writes it, or the next question, itself",
                  "answers begin with assistant or model, or with another user turn",
                  ("asked-in-another-form", "answers-echo-the-prompt")),
            Cause("the training rows begin with a system prompt that the app does not send, or that falls out of a"
                  " window over the history (history[-6:])",
                  "forgets its persona or rules; good at first and generic after a few turns; system prompt in the"
                  " training data only",
                  ("asked-in-another-form", "server-builds-another-prompt")),
            Cause("prompts are cut on the right where they are asked (truncation=True with a short max_length): the"
                  " question and the header of the answer are at their end",
                  "long documents or contexts: it continues the document instead of an answer; short ones are fine",
                  ("prompts-lose-their-end",)),
            Cause("generate returns the prompt's ids before the answer's, and both are decoded",
                  "answers begin with the prompt, the question or system and user; repeats the question",
                  ("prompt-left-in-answers", "answers-echo-the-prompt")),
            Cause("too many epochs on few rows: the model recites them whatever is asked",
                  "answers are training rows word for word, or the same for all questions; 50 rows, 20 epochs; overfit",
                  ("same-rows-over-and-over",)),
            Cause("a completion was asked for without max_tokens: /v1/completions and llama-cpp-python end after 16"
                  " tokens; chats have no such limit",
                  "answers break off in the middle after ten words or one line, truncated; finish_reason length;"
                  " vllm completions, llama_cpp",
                  ("generation-length-not-set", "answers-are-cut-off")),
            Cause("a stop string is inside the answers: stop=['\\n'], or PARAMETER stop of a Modelfile",
                  "empty answers or only the first line, list or heading is missing; stop sequences",
                  ("generation-settings-distort-answers", "modelfile-parameters-unfit")),
            Cause("Ollama cuts prompts at num_ctx (4,096 tokens by default), and drops their beginning: the documents"
                  " and the system prompt",
                  "ollama ignores the documents or context of RAG, forgets the beginning; truncating input prompt",
                  ("modelfile-context-left-to-default", "fault-named-in-the-output")),
            Cause("each token is decoded alone and the pieces are joined: decode all ids so far, or use"
                  " TextIteratorStreamer",
                  "streaming output without spaces, words run together, \ufffd or question marks for umlauts"
                  " and emojis;"
                  " own streaming loop",
                  ("tokens-decoded-one-by-one",)),
            Cause("repetition_penalty or no_repeat_ngram_size forbids what has to be repeated",
                  "broken json, missing keys, odd synonyms, words that fall apart late in the answer",
                  ("repetition-forbidden-in-structured-answers", "generation-settings-distort-answers")),
            Cause("the adapter was merged into 4-bit weights, or a quantized export is too coarse: compare one answer "
                  "of "
                  "the f16 file with that of q4",
                  "the adapter is good and the merged model, q4_k_m, gptq or awq is garbage; f16 is fine",
                  ("merged-into-4bit-or-low-precision", "merge-into-quantized-base")),
            Cause("weights are missing in what is loaded, and begin at random: an adapter or a sharded save read as a "
                  "model, "
                  "a head that was not saved",
                  "some weights were not initialized from the checkpoint and are newly initialized; word salad after "
                  "loading",
                  ("tensors-missing", "tied-embeddings-flag-contradicts-tensors", "sharded-weights-not-gathered")),
            Cause("prompts are longer than the model, its rope scaling or the training knows: compare the tokens of "
                  "the "
                  "prompt with max_position_embeddings in config.json, and with the length of training",
                  "short prompts are fine and long ones (longer than 4k, 8k, 32k tokens) turn into gibberish",
                  ("length-beyond-the-model", "context-is-shorter-than-training")),
            Cause("labels are shifted twice in a hand-written loop or collator",
                  "fluent words in a wrong order, every second token skipped; a custom collator with labels[:, 1:]",
                  ("labels-shifted-by-hand", "double-label-shift")),
            Cause("a large part of the training answers is in another language than the questions will be in: a"
                  " translated set that was mixed in (alpaca_zh). Count the rows of each language, and keep those of"
                  " yours, or prompt and answer in one language",
                  "I ask in German and it suddenly answers in Chinese, in English or in another language; switches the"
                  " language",
                  ("answers-mix-languages-unasked",)),
            Cause("an instruct model was trained on raw texts alone (books, articles) and has unlearned to answer:"
                  " mix in chats, train an adapter at a lower rate, or train the base and then instruct it",
                  "writes articles, chapters or wikipedia style paragraphs and continues my text instead of answering;"
                  " continued pretraining on documents; lost its chat behaviour"),
            Cause("the texts were taken from PDF files with their page headers, page numbers and hyphens at line ends:"
                  " take repeated first lines out and join the words before training",
                  "answers contain 'Page 3 of 40', page numbers, headers or footers, and broken words with"
                " hyphens; pdf"),
            Cause("the rows hold it: HTML markup, broken encoding, escapes, another chat template",
                  "&nbsp; <br> html tags, mojibake, backslash n, or template marks in the answers, as in the training "
                  "data",
                  ("escape-sequences-as-text", "broken-encoding", "template-inside-template")),
        ),
    ),
    Guide(
        "never-stops",
        "guides/the-model-never-stops.md",
        "The model never stops",
        ("generates until max tokens", "does not stop", "endless answers", "runs on and on", "keeps talking",
         "invents the next user turn", "no eos"),
        "truetune check DATA -t TOKENIZER",
        (
            Cause("the stop token is masked, because it is the pad token",
                  "answers hit max_new_tokens although rows end well",
                  ("pad-is-stop-token", "padding-supervised", "stopping-never-learned")),
            Cause("no stop token is in the rows", "invents the next user turn or question after its answer",
                  ("eos-not-appended", "answer-not-terminated")),
            Cause("most rows lose their end at a length limit, a default such as TRL's 1,024 tokens too: set "
                  "max_length to the longest row",
                  "long answers or documents; it stays in a middle section and never comes to the end",
                  ("truncation-cuts-the-terminator", "rows-longer-than-default-max-length", "rows-surely-cut")),
            Cause("the server stops at another token", "stops in the notebook, and not when served",
                  ("trained-stop-not-served", "stop-ids-incomplete")),
            Cause("stopping is switched off where it is asked: ignore_eos, min_tokens or min_new_tokens, a bias on EOS",
                  "each answer has exactly max_tokens tokens, finish_reason length; copied from a benchmark of speed",
                  ("command-switches-stopping-off", "generation-settings-distort-answers")),
            Cause("a few turns of dialogue are one text, and only the last of them ends with the end token",
                  "plays both sides, writes the user's part too, continues with a whole conversation",
                  ("inner-turns-not-terminated", "answers-continue-the-dialogue")),
        ),
    ),
    Guide(
        "loss-does-not-fall",
        "guides/loss-does-not-fall.md",
        "The loss does not fall",
        ("loss is flat", "loss is not decreasing", "loss stuck", "loss does not go down", "loss constant", "loss is 0",
         "loss is zero from the start", "loss plateau", "model does not learn", "grad norm is 0", "loss rises",
         "loss explodes", "loss goes up", "loss is nan", "loss is chaotic", "forgot optimizer.step",
         "scheduler stepped once per epoch", "learning rate too high", "loss plateaus high", "training diverges",
         "loss spikes", "does not converge", "training is unstable"),
        "truetune diagnose RUN",
        (
            Cause("nothing is trainable: an adapter that was loaded frozen", "gradient norm is 0; loss repeats",
                  ("grad-norm-zero", "trained-tensors-without-gradient", "adapter-loaded-frozen")),
            Cause("reentrant gradient checkpointing over a frozen base cuts the adapter off: give "
                  "gradient_checkpointing_kwargs={'use_reentrant': False}, or call "
                  "model.enable_input_require_grads()",
                  "gradient checkpointing was switched on with LoRA, and the loss is the same in every epoch since; "
                  "None of the inputs have requires_grad=True",
                  ("reentrant-checkpoints-lose-gradients", "gradient-checkpointing-kills-grads",
                   "trained-tensors-without-gradient")),
            Cause("no token has a label: the loss is 0 or NaN",
                  "all labels are masked; loss is 0.0 after changing the model, with train_on_responses_only or the "
                  "response template of another: llama, qwen, gemma, mistral",
                  ("line-without-label", "no-supervised-token", "loss-or-gradient-exactly-zero",
                   "response-marker-of-another-family", "response-marker-not-written", "answers-masked-in-token-rows",
                   "prompts-fill-the-limit")),
            Cause("of GRPO the loss is no measure: the advantages of a group sum to 0, so it is printed as 0.0 or "
                  "near it; look at reward, and at reward_std, which is 0 where all answers of a group get one "
                  "reward",
                  "grpo training loss is 0.0 from the first step and does not decrease; rlvr; rloo; reward rises",
                  ("no-reward-signal",)),
            Cause("the run resumed from a checkpoint that was at its last step already: raise num_train_epochs, or "
                  "begin without resume_from_checkpoint",
                  "training finishes immediately or ends at once after resume, resume_from_checkpoint; Continuing "
                  "training from global step; train_loss is 0.0", ()),
            Cause("the learning rate is far too small", "a flat loss",
                  ("flat-loss", "learning-rate-far-from-published", "learning-rate-beyond-reason")),
            Cause("activations or gradients overflow in float16 (most of all Gemma and T5), so that the scaler skips"
                  " each step: bf16 has the range; on a V100 or T4, which has no bf16, float32",
                  "loss is 0.0 or nan, grad norm is nan or inf and the learning rate stays at 0; fp16",
                  ("grad-norm-explodes", "loss-or-gradient-exactly-zero", "bf16-model-run-in-fp16")),
            Cause("DeepSpeed's loss scale is a fixed number at which the gradients overflow: set loss_scale to 0, which"
                  " is dynamic",
                  "Attempted loss scale 65536, reducing to 65536; the learning rate and the norm are logged as 0",
                  ("fixed-loss-scale-skips-steps",)),
            Cause("the adapter is scaled away: lora_alpha far below its rank",
                  "a flat loss at an ordinary learning rate", ("flat-loss",)),
            Cause("the adapter is scaled far up: lora_alpha many times its rank, or use_rslora with the alpha of"
                  " plain LoRA, which multiplies the steps as a rate does",
                  "lora loss falls a little, then shoots up and stays high at an ordinary learning rate; lora_alpha"
                  " 512, rslora"),
            Cause("the run makes only a few optimizer steps: rows / (batch x accumulation x GPUs) in an epoch. Fewer"
                  " rows in a step, or more epochs",
                  "the loss hardly moves and training is over in a minute; 300 rows, gradient_accumulation_steps 64,"
                  " Total optimization steps = 6"),
            Cause("the graph is cut in your own code: the loss is made from .item(), .detach(), argmax or"
                  " torch.tensor(...), or under torch.no_grad()",
                  "element 0 of tensors does not require grad and does not have a grad_fn; own loss or compute_loss,"
                  " loss constant although it is computed; requires_grad_(True) on the loss",
                  ("loss-forced-to-require-grad",)),
            Cause("the answers can't be learned: base64, hex, other rows' answers, chance",
                  "the loss falls by a few percent and stays; gradients are healthy", ("flat-loss", "encoded-text")),
            Cause("the learning rate is far too large", "the loss climbs, jumps about or diverges",
                  ("loss-climbs-above-guessing", "loss-diverges", "loss-is-chaotic", "steps-larger-than-the-weights",
                   "learning-rate-far-from-published", "learning-rate-beyond-reason")),
            Cause("labels do not belong to the inputs", "labels shifted twice; the loss stays near guessing",
                  ("double-label-shift", "loss-target-is-not-next-token",
                   "labels-shifted-by-hand")),
            Cause("weights in bfloat16 alone, and steps that are rounded away", "the same loss at every step",
                  ("loss-repeats-exactly", "updates-smaller-than-rounding", "pure-bf16-updates-rounded-away",
                   "bf16-weights-lose-small-updates")),
            Cause("the schedule has ended, or never leaves its warm-up", "the learning rate is 0, or warmup never ends",
                  ("learning-rate-ended-early", "learning-rate-never-peaked", "warmup-longer-than-run",
                   "schedule-never-stepped")),
            Cause("the scheduler counts optimizer steps and is stepped once an epoch, or the other way round",
                  "a hand-written loop, or Lightning", ("scheduler-length-miscounted",)),
            Cause("the optimizer never steps, steps on cleared gradients, or was made before the adapter",
                  "a hand-written loop; no error",
                  ("gradients-never-used", "steps-without-gradient", "optimizer-misses-trained-tensors")),
            Cause("there is nothing left to learn: the base knows the rows", "a low loss from the start"),
            Cause("the rows were generated by the very model that is tuned, so the loss is at its floor: take a"
                  " stronger teacher, or texts of people",
                  "loss starts at 0.3 and barely falls; is something wrong; synthetic data, generated or distilled "
                  "rows, prep script"),
            Cause("one row is a step, and each step is logged: the loss of single rows differs by more than it falls; "
                  "accumulate 16 to 32 rows and read a mean over 50 steps",
                  "loss just jumps around between 0.4 and 3; noisy, per_device_train_batch_size=1, "
                  "gradient_accumulation_steps=1, logging_steps=1",
                  ("loss-oscillates",)),
            Cause("the printed loss is a mean since the start of the run, which hides the present one: print"
                  " loss.item(), or set the sum and the count to 0 each time",
                  "my printed loss goes down only extremely slowly; running / seen, total / (step + 1), an own loop"),
            Cause("the logged loss is multiplied by the accumulation steps (transformers 4.46.0, and models or losses"
                  " that ignore num_items_in_batch): compare eval_loss, and update transformers",
                  "train loss is 15 now while eval loss is under 2; same script as last month, after an update",
                  ("loss-is-a-sum", "custom-loss-breaks-gradient-accumulation")),
            Cause("Adafactor sets its own rate: warmup_init=True makes it 1e-6 times the step, which a run of some"
                  " hundred steps never leaves; relative_step=False, scale_parameter=False, warmup_init=False, lr=1e-3"
                  " for T5",
                  "with adafactor the t5 loss hardly moves; relative_step, lr=None"),
            Cause("the optimizer and scheduler of ds_config.json decide, and the script's --lr is read nowhere: "
                  "deepspeed.initialize without an optimizer takes the file's lr and warm-up",
                  "I changed the lr three times and the curve is identical; deepspeed",
                  ("deepspeed-ignores-the-scripts-rate", "launch-files-contradict")),
            Cause("an optimizer that scales nothing (plain SGD) has the rate of AdamW, or a soft prompt has that of "
                  "weights", "saved memory with sgd but the loss is a straight line; prompt tuning loss is flat",
                  ("setting-out-of-range", "learning-rate-beyond-reason")),
            Cause("the evaluation's rows are made by another function than those of the training: no template, or the "
                  "prompt is not masked, so eval_loss can't follow",
                  "train loss is fine but eval loss is flat at 3.2; constant eval loss; val mapped otherwise"),
            Cause("a classifier reads its answer off a pad: model.config.pad_token_id is another than the tokenizer's,"
                  " so the last token is not found; set it to tokenizer.pad_token_id",
                  "llama classifier does not learn with batch size 8 but does with batch size 1; sequence "
                  "classification",
                  ("classifier-pads-with-another-token",)),
            Cause("training_step of Lightning returns nothing, so that each batch is skipped",
                  "no crash but the loss is the same in every epoch; training_step returned None",
                  ("training-step-returns-nothing",)),
        ),
    ),
    Guide(
        "nothing-is-learned",
        "guides/loss-falls-but-nothing-is-learned.md",
        "The loss falls, but nothing is learned",
        ("loss falls but the model did not learn", "low loss bad answers", "fine-tuning has no effect",
         "same answers as the base model", "loss near zero but useless", "model ignores my data",
         "wrong column trained", "outputs are the same for all inputs", "one answer to everything",
         "training was over after a few optimizer steps", "training finished in two minutes",
         "inference format differs from training", "adapter is not loaded at inference",
         "model refuses everything after training", "always predicts the same class"),
        "truetune rehearse SETTINGS",
        (
            Cause("another column, the template's text or the prompt is supervised, and not the answer",
                  "the loss falls fast to near zero; rubbish output; one answer to all inputs",
                  ("recites-another-field", "recites-one-answer", "prompt-supervised")),
            Cause("the answers of the rows are all alike", "one answer to everything", ("few-distinct-answers",)),
            Cause("labels are shifted twice", "answers skip every second token", ("double-label-shift",)),
            Cause("the configuration trains the demo data of its framework, and no row of your own: the file is"
                  " registered nowhere, or its name was not put in",
                  "dataset: identity,alpaca_en_demo was left in; the model knows nothing of our data after "
                  "LLaMA-Factory or Axolotl; Num examples is not the number of our rows",
                  ("demo-data-trained-own-rows-unused",)),
            Cause("the text that answers are made from reaches no prompt: a column that is not mapped, or a placeholder"
                  " that nothing fills; the model can only invent names and numbers",
                  "the form or JSON is right, and names, numbers and values are invented or made up; LLaMA-Factory "
                  "columns without query; the input column is ignored",
                  ("unused-columns", "prompts-all-alike", "prompts-do-not-tell-the-answers")),
            Cause("what was trained does not arrive: adapter not applied, weights not saved, another prompt is served",
                  "same answers as the base model; the adapter is saved and loaded without error and makes no"
                  " difference; lora weights saved by hand from state_dict",
                  ("weights-equal-the-base", "adapter-is-not-served")),
            Cause("the run makes a few optimizer steps in all: rows x epochs / batch, or max_steps",
                  "it was over within minutes; only 3 steps; max_steps 60 of a notebook",
                  ("setting-out-of-range", "run-ended-after-few-steps", "few-steps-of-very-many-rows")),
            Cause("a hand-written attention mask (packing, 4D, FlexAttention) has no causal part: tokens see the ones"
                  " that they are to predict",
                  "own packing code or collator; the loss falls to 0.00x within the first epoch, then word salad",
                  ("mask-without-causality", "shortcut-loss")),
            Cause("a limit of a trial is still in force, and few rows are trained over and over: SMOKE_TEST, DEBUG,"
                  " max_train_samples, select(range(64))",
                  "loss goes to 0.01 in a run of hundreds of epochs; no better than the base on test questions",
                  ("same-rows-over-and-over", "trial-limit-switched-on", "few-rows-reach-the-trainer")),
            Cause("a config, collator or callback is built and never passed on: what it configures does not happen",
                  "LoraConfig without peft_config; all parameters are trained; prompts are not masked",
                  ("settings-never-passed",)),
            Cause("the base is asked instead of the tuned model: no adapter, a new one, none in the request",
                  "same answers as the base model; lora_request is missing; get_peft_model at inference; ollama create"
                  " worked and the tuning is not in the model; Modelfile without ADAPTER",
                  ("base-asked-instead", "modelfile-serves-the-base")),
            Cause("the script that asks writes in another form than the training",
                  "trained on Alpaca text (### Instruction), asked by the chat template",
                  ("asked-in-another-form", "served-template-differs")),
            Cause("most rows have one label, or refuse", "always the same class; the model refuses everything",
                  ("few-distinct-answers", "refusals-in-answers")),
            Cause("the adapter was loaded frozen, or gets no gradient", "weights never moved",
                  ("adapter-loaded-frozen", "trained-tensors-without-gradient", "adapter-without-effect")),
            Cause("a step is smaller than bfloat16 can hold", "weights never moved",
                  ("updates-smaller-than-rounding",)),
            Cause("dead batches are logged as 0, and the mean falls", "loss is exactly zero now and then",
                  ("loss-or-gradient-exactly-zero",)),
            Cause("facts that are in few rows, in one wording each, are not learned: write each fact in many wordings"
                  " (and questions), train for more epochs with a larger rank, or give the texts to the model (RAG)",
                  "the model does not know the facts of our documents or company and makes things up about our "
                  "products; hallucinates on the training questions; knowledge is not learned by LoRA",
                  ("memorised-not-learned",)),
            Cause("the own rows are lost in a large general set: repeat them, or train on them alone",
                  "loss looks great but it ignores my 250 examples, my own rows, completely; own.jsonl beside a large"
                  " dataset such as OpenHermes, and max_steps",
                  ("own-rows-are-rare",)),
            Cause("each fact is in one wording: it is recited, and not known; write each in many wordings",
                  "can recite my training questions but if I ask differently, rephrased, in other words, it"
                  " hallucinates"),
            Cause("facts are asked in one direction, and the test asks in the other: a model that learned `A is B` does"
                  " not answer what B is; add rows for both directions",
                  "knows the code for each pump but not the pump for a code; the reverse question, the other direction,"
                  " backwards"),
            Cause("the container has older weights: they were copied into the image, or revision= is pinned, or"
                  " HF_HUB_OFFLINE=1 keeps the cached snapshot; build it again, or name the new revision",
                  "pushed v2 to the hub, the pod or docker container still gives v1 answers; old version, new weights"
                  " not pulled"),
            Cause("saved weights have module. or _orig_mod. before their names, and strict=False loads none of them",
                  "load_state_dict strict=False; checkpoint of DDP or torch.compile; the loaded checkpoint answers as "
                  "the base model",
                  ("wrapper-keys-not-loaded", "compiled-model-saved")),
            Cause("the run resumed from a checkpoint at its last step: all steps are done, new rows are never seen",
                  "resume_from_checkpoint and training finished immediately or within a second; train_loss 0.0; new "
                  "data has no effect; trained again with new questions and it does not know any of the new"
                  " ones",
                  ("fault-named-in-the-output",)),
            Cause("only the end token has a label: the mask's start was searched from the end of the row, so all"
                  " before it is masked; decode the labels that are not -100",
                  "loss is practically 0 after 10 steps, falls to nothing right away, way too good to be true; loss"
                  " 0.0003, <|im_end|>",
                  ("answers-not-trained",)),
            Cause("the rows carry a system prompt that the requests leave out, and what was trained hangs on it: send"
                  " the same one, or train rows without it too",
                  "it still says it is Qwen made by Alibaba; the trained persona, name or character does not show in"
                  " the chat",
                  ("served-template-differs",)),
            Cause("an earlier preparation is loaded again: a cache file (cache_file_name of map, a pickle,"
                  " load_from_disk) is there, so new rows or prompts change nothing; delete it",
                  "I changed the dataset and it still learns the old answers; new data, retrained, same as before"),
            Cause("the ids of images keep their labels: hundreds of equal placeholders a row make the loss tiny; set "
                  "labels to -100 where they are processor.image_token_id, and on the prompt",
                  "vision finetune has super low loss but reads my invoices or documents as badly as before; VLM, "
                  "own collator, image_pad"),
            Cause("the rows were generated by the very model that is tuned, so there is nothing new in them: take a"
                  " stronger teacher, or texts of people",
                  "loss is perfect from step one but no change visible; synthetic, generated or distilled rows"),
            Cause("the server of before still holds the port: the new one ended with address already in use; "
                  "compare the name in /v1/models",
                  "restarted with the new model, answers are still the old ones",
                  ("run-ended-in-an-exception",)),
            Cause("the evaluation names the base twice: lm_eval's model_args have no peft=, or results are of an older "
                  "folder",
                  "lm_eval scores are exactly the same before and after fine-tuning",
                  ("harness-runs-ask-one-model", "base-asked-instead")),
            Cause("checkpoints are asked with one cache or one kept file: lm_eval --use_cache is not kept by model",
                  "every checkpoint has the same score to the last digit; later evaluations take a minute; Cached"
                  " requests: N, Requests remaining: 0",
                  ("checkpoints-evaluated-from-one-cache",)),
            Cause("the learning rate is far below that of an adapter: 1e-5 and less is for all weights, an adapter"
                  " begins at 1e-4",
                  "loss goes down a little and the model writes like before; learning_rate 1e-6 or 1e-5 with LoRA,"
                  " QLoRA",
                  ("learning-rate-far-from-published",)),
            Cause("an older checkpoint is asked: names are sorted as text, so that checkpoint-900 comes after"
                  " checkpoint-1000, or the script holds the path of an earlier run",
                  "trained longer and nothing changed; answers of an early checkpoint; sorted(glob(...))[-1],"
                  " ls | tail"),
            Cause("training ends at an early checkpoint: early stopping, or load_best_model_at_end takes the step of"
                  " the lowest evaluation loss, which comes long before style and format are learned",
                  "the loss fell nicely and the saved model has hardly changed; restored checkpoint-50 of 1000;"
                  " EarlyStoppingCallback with a patience of 1",
                  ("best-checkpoint-is-worst",)),
            Cause("the pads have labels: most tokens of a row are the same pad, and the loss is theirs; set labels to"
                  " -100 where the attention mask is 0",
                  "loss is 0.05 within some steps with short rows; padding to max_length, labels = input_ids.copy()",
                  ("labels-copy-input-ids",)),
        ),
    ),
    Guide(
        "out-of-memory",
        "guides/out-of-memory.md",
        "Out of memory",
        ("cuda out of memory", "oom", "does not fit the gpu", "runs out of vram", "oom in evaluation",
         "oom after some hours", "how much memory do I need", "killed"),
        "truetune plan SETTINGS --gpu SIZE",
        (
            Cause("activations: too many or too long rows at a time", "memory grows with batch size and length"),
            Cause("eager attention holds the scores of all heads, rows x heads x length x length",
                  "the traceback has eager_attention_forward and softmax; long rows; attn_implementation eager",
                  ("run-ended-in-an-exception",)),
            Cause("nn.DataParallel: plain python on several GPUs, and GPU 0 gathers the logits of all",
                  "out of memory on GPU 0 alone; data_parallel.py, gather or scatter in the traceback",
                  ("run-ended-in-an-exception",)),
            Cause("embeddings and head are trained whole (modules_to_save, lora_modules_to_save, additional_target)",
                  "trainable% above 4 with LoRA; out of memory at the first optimizer step",
                  ("run-ended-in-an-exception",)),
            Cause("tensors of each step are kept: losses, outputs, hidden states in a list",
                  "memory grows with every step until it is full; out of memory after hundreds of steps",
                  ("outputs-kept-on-the-device", "memory-grows-with-each-step")),
            Cause("logits of a large vocabulary, rows x length x vocabulary: gradient checkpointing and a batch of 1 do"
                  " not help, a fused loss does (use_liger_kernel)",
                  "out of memory in the loss or cross entropy, although gradient checkpointing is on and batch is 1;"
                  " vocab of 150k or 256k, 16k or 32k tokens"),
            Cause("hidden states or attentions that the model returns are kept in the evaluation, for compute_metrics",
                  "out of memory in evaluation with output_hidden_states=True or output_attentions=True",
                  ("evaluation-keeps-all-logits",)),
            Cause("images of full size: an image is thousands of tokens (max_pixels, image_max_pixels)",
                  "out of memory with a vision model, qwen vl, llava, at some images; a few steps fit, then oom",
                  ("run-ended-in-an-exception", "pictures-at-full-size")),
            Cause("CUDA_VISIBLE_DEVICES is set in the script after CUDA was started, and another GPU is used",
                  "os.environ CUDA_VISIBLE_DEVICES is ignored, always GPU 0, which another process fills",
                  ("visible-devices-set-too-late",)),
            Cause("all weights are trained instead of an adapter: a LoraConfig is built and never passed on",
                  "LoRA with batch size 1 runs out of memory; trainable parameters are all parameters",
                  ("settings-never-passed",)),
            Cause("states of the optimizer, and gradients of what is trained",
                  "out of memory at the first optimizer step"),
            Cause("a second model is loaded (a merge, an evaluation, the next stage) while the first one, its trainer"
                  " and its optimizer are still held",
                  "out of memory at the end, when merging or loading the model again after the training",
                  ("model-loaded-beside-another", "run-ended-in-an-exception")),
            Cause("an evaluation with larger batches, or that keeps its logits", "out of memory during evaluation",
                  ("evaluation-keeps-all-logits", "eval-oom-logits-kept")),
            Cause("one row far longer than the others", "out of memory after some hours, at random"),
            Cause("losses that a loop keeps with their graphs", "memory grows with each step, out of memory after some"
                  " hundred steps", ("losses-kept-with-graph",)),
            Cause("all weights are gathered on one GPU to be saved (FSDP: full state dict; SHARDED_STATE_DICT "
                  "keeps parts)",
                  "out of memory when saving the checkpoint with fsdp; oom at save_model, at save_steps",
                  ("run-ended-in-an-exception",)),
            Cause("torch.load without map_location puts the checkpoint of every process on GPU 0",
                  "oom when resuming from a checkpoint, and a run from scratch fits; GPU 0 alone is full at resume",
                  ("checkpoint-loaded-onto-one-gpu",)),
            Cause("every process puts its model on GPU 0: no torch.cuda.set_device, or device_map names GPU 0",
                  "only gpu 0 runs out of memory, the other gpus have plenty free; nvidia-smi shows all "
                  "processes on GPU 0",
                  ("processes-share-a-gpu", "device-map-in-a-distributed-script")),
            Cause("gradient checkpointing is inactive: the model is in eval mode, from_pretrained gives it so",
                  "gradient checkpointing makes no difference, the same memory with gradient_checkpointing_enable",
                  ("checkpointing-without-training-mode", "trained-in-eval-mode")),
            Cause("an evaluation or a teacher without torch.no_grad, whose activations are kept",
                  "oom in validation of a hand-written loop; a teacher or reference model takes as much memory "
                  "as training",
                  ("evaluation-builds-graphs",)),
            Cause("weights are cast to float32: prepare_model_for_kbit_training casts embeddings, norms and head"
                  " (gigabytes"
                  " at a vocabulary of 256,000), and all weights of a model that is not quantized",
                  "the model takes twice the memory it should, it doubles one line after the load, before training has"
                  " begun; oom in prepare_model_for_kbit_training",
                  ("kbit-preparation-of-plain-weights",)),
            Cause("all rows are padded to max_length", "the same memory for short rows as for long ones; "
                  "padding max_length",
                  ("rows-padded-to-a-fixed-length",)),
            Cause("the model is loaded before ZeRO-3 is known, whole in each process (zero.Init)",
                  "zero3 oom at from_pretrained, each rank loads the whole model; host memory full with "
                  "deepspeed stage 3",
                  ("model-made-before-zero3",)),
            Cause("the machine's memory, not the GPU's: a merge on the CPU, a model in each process, data held "
                  "in memory",
                  "killed without a traceback while merging, loading or mapping; exit code 137; signal 9",
                  ("run-was-killed",)),
            Cause("a merge loads the whole base on the GPU: merge on the CPU (truetune merge ADAPTER -o MERGED, or "
                  "device_map=\"cpu\")",
                  "out of memory when merging the lora adapter into a large base model, 70b; oom in merge_and_unload",
                  ("run-ended-in-an-exception",)),
            Cause("FSDP makes one unit of the whole model (fsdp_auto_wrap_policy: NO_WRAP, FSDP(model) without"
                  " auto_wrap_policy, fully_shard(model) alone): each GPU gathers all of it",
                  "FULL_SHARD runs out of memory as if nothing were sharded; a quarter of the model should fit;"
                  " fsdp_auto_wrap_policy",
                  ("fsdp-shards-one-unit", "run-ended-in-an-exception")),
            Cause("the states of the optimizer are offloaded, and the job or container allows less memory than they"
                  " need: 12 to 16 bytes a weight",
                  "the job dies with exit code -9 before the first step, the GPUs are nearly empty; offload_optimizer,"
                  " --mem",
                  ("offload-beyond-the-jobs-memory", "run-was-killed")),
            Cause("a load without a dtype: transformers before 5 takes float32, twice what the checkpoint has",
                  "loading or merging is killed although the model is half as large as the memory; from_pretrained"
                  " without torch_dtype",
                  ("run-was-killed",)),
            Cause("vLLM on the GPU that trains", "out of memory at the start, or free memory is less than desired GPU"
                  " memory utilization", ("vllm-takes-the-training-memory", "vllm-beside-training")),
            Cause("DPO holds a second whole model: ref_model= is given, or TRL copies the policy where there is no"
                  " adapter."
                  " LoRA with ref_model=None, or precompute_ref_log_probs=True",
                  "SFT of the same model fits easily, DPO with half the batch size runs out of memory; DPOTrainer,"
                  " ref_model",
                  ("run-ended-in-an-exception",)),
            Cause("chosen and rejected answers go through the model together: a batch of 4 pairs is 8 rows (DPO,"
                  " ORPO, CPO),"
                  " with logits for all of them",
                  "one allocation of many GB kills a DPO run; per_device_train_batch_size of a DPOConfig",
                  ("run-ended-in-an-exception",)),
            Cause("a cell of the notebook that loads the model was run again, while the first model, its trainer and"
                  " the last"
                  " exception still hold the memory: restart the kernel",
                  "the first run of the notebook works, the second run of the same cell gives cuda out of memory",
                  ("run-ended-in-an-exception", "model-loaded-beside-another")),
            Cause("one backward() for many batches: losses are added up first, so that the graphs of all"
                  " micro-batches are"
                  " kept",
                  "gradient accumulation does not save memory, 16 micro-batches need as much as a batch of 16; a"
                  " hand-written loop",
                  ("one-backward-for-many-batches",)),
            Cause("all prompts of a file go into one generate() call, or its scores and hidden states are kept for"
                  " every row",
                  "generating one answer works, generating the test set is out of memory at once or after some hundred"
                  " rows; model.generate, output_scores",
                  ("all-prompts-in-one-generation", "outputs-kept-on-the-device")),
            Cause("the evaluation harness takes a batch that its short tasks allow: few-shot prompts have thousands"
                  " of tokens."
                  " --batch_size auto or 4",
                  "lm_eval goes through hellaswag and crashes with oom at mmlu 5-shot; --batch_size 64",
                  ("run-ended-in-an-exception",)),
            Cause("weights were saved in float32 (config.json: torch_dtype float32), twice those of the base in 16"
                  " bits",
                  "the base model loads on this gpu and my merged fine-tune of the same size does not",
                  ("run-ended-in-an-exception",)),
            Cause("device_map spreads layers by the size of their weights alone: the last GPU has the head and its"
                  " logits."
                  " max_memory, or FSDP and ZeRO",
                  "two gpus, one is half empty and the other one runs out of memory; device_map auto",
                  ("run-ended-in-an-exception", "several-gpus-in-one-process")),
            Cause("rows of like length come into one batch, the longest first (group_by_length)",
                  "with group_by_length it dies on the first step, without it the run survives for a while",
                  ("run-ended-in-an-exception",)),
            Cause("gradient checkpointing is switched off: disable_gradient_checkpointing: true (LLaMA-Factory),"
                  " gradient_checkpointing: false, use_gradient_checkpointing=False",
                  "the same model, cutoff and batch need nearly twice the memory of a colleague's run; out of memory"
                  " on the"
                  " first step",
                  ("gradient-checkpointing-switched-off",)),
            Cause("packing fills every row to sequence_len, and micro_batch_size of them are computed at a time",
                  "my examples are just 300 tokens each, why does it need memory like for 16k context; sample_packing,"
                  " pad_to_sequence_len",
                  ("packed-batch-of-many-tokens",)),
            Cause("ZeRO's stages 1 and 2, NO_SHARD and SHARD_GRAD_OP leave the weights whole on each GPU: stage 3 or"
                  " FULL_SHARD shares them out",
                  "640 GB in total should suffice, and DeepSpeed cannot even start a 34B full fine-tune; switched"
                  " from ddp"
                  " to fsdp to save memory and nothing changed",
                  ("fsdp-shards-nothing", "sharding-file-not-read", "run-ended-in-an-exception")),
            Cause("DeepSpeed's buffers: reduce_bucket_size and allgather_bucket_size of 5e9 elements are 10 GB each."
                  " 5e8, or"
                  " auto",
                  "ZeRO-2 takes about 20 GB more per gpu than the calculator says; ds_config",
                  ("deepspeed-buckets-fill-the-gpu",)),
            Cause("a mixture of experts holds all of its parameters, however few a token uses (30B-A3B is 57 GB in"
                  " 16 bits),"
                  " and fused experts are not quantized by bitsandbytes",
                  "a 3B-active model ought to run on 24 GB, but loading already fails, even in 4-bit",
                  ("experts-not-quantized", "run-ended-in-an-exception")),
            Cause("the server's cache: vLLM takes the model's whole context (--max-model-len), llama.cpp with -c 0"
                  " too, Ollama"
                  " num_ctx x OLLAMA_NUM_PARALLEL",
                  "the server does not start although the weights fit; cudaMalloc failed; KV cache is needed; other"
                  " people"
                  " run this model on 12 GB",
                  ("run-ended-in-an-exception", "fault-named-in-the-output")),
            Cause("vLLM's share leaves nothing beside it (--gpu-memory-utilization 0.98), or --max-loras x"
                  " --max-lora-rank"
                  " fills it",
                  "oom in graph capturing; no memory for cache blocks with --enable-lora",
                  ("run-ended-in-an-exception",)),
            Cause("a copy of all weights on the GPU before they are saved (state_dict() with .clone() or .float()),"
                  " or a second"
                  " model in a callback",
                  "out of memory exactly while saving the checkpoint, though training had GB free; oom when my"
                  " sample-generation callback runs",
                  ("model-loaded-beside-another", "run-ended-in-an-exception")),
            Cause("the job asks for no memory (#SBATCH --mem), and Slurm gives some GB for each processor",
                  "the node has 1 TB of RAM, and the job dies as OUT_OF_MEMORY while loading",
                  ("run-was-killed",)),
            Cause("rows are held as Python objects: json.load or a list of dictionaries, and each worker of the"
                  " DataLoader"
                  " copies them. load_dataset maps them from the disk",
                  "RAM goes to 100% before any GPU work when I build the dataset; host memory slowly grows during"
                  " the epoch"
                  " until a worker is killed",
                  ("run-was-killed", "run-ended-in-an-exception")),
            Cause("the GPU is a slice (MIG 1g.10gb), or others work on it: the message names its capacity and their"
                  " processes",
                  "the cluster has A100s with 80 GB, but out of memory at 9.7 GB; nvidia-smi -L shows MIG",
                  ("run-ended-in-an-exception",)),
            Cause("memory is held in pieces (fragmentation), for rows of another length in each batch:"
                  " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                  "much is reserved by PyTorch but unallocated; memory_reserved grows while memory_allocated does not",
                  ("run-ended-in-an-exception",)),
            Cause("GRPO computes log probabilities for all completions of a step, num_generations x"
                  " max_completion_length x vocabulary: fewer at a time, shorter ones, or use_liger_loss",
                  "GRPO generates, and runs out of memory in the loss; compute_loss, _get_per_token_logps",
                  ("run-ended-in-an-exception",)),
            Cause("several sequences are generated for each prompt (num_beams, num_return_sequences): each has a cache"
                  " of its own",
                  "one answer for a prompt fits, beam search or 16 samples of it run out of memory; generate"),
        ),
    ),
    Guide(
        "several-gpus",
        "guides/several-gpus.md",
        "More GPUs, but training is no faster or better",
        ("multi gpu not faster", "ddp hangs", "training hangs with two gpus", "one gpu idle", "nccl timeout",
         "same rows on every rank", "loss differs with more gpus", "deadlock in evaluation"),
        "truetune run -- torchrun --nproc-per-node 2 SCRIPT",
        (
            Cause("every process reads the same rows: a hand-written loader that nobody splits, or a stream",
                  "an epoch has as many iterations or steps, and takes as long, as on a single GPU; no speed-up",
                  ("same-rows-on-every-rank", "stream-read-whole-by-every-rank",
                   "loader-without-distributed-sampler")),
            Cause("layers on several GPUs (`device_map`), which then wait for one another",
                  "GPUs are busy one at a time, sequentially; steps are slow; memory on all and work on one card",
                  ("several-gpus-in-one-process", "device-map-in-a-distributed-script",
                   "device-map-splits-the-trained-model")),
            Cause("the files of the launch contradict each other: accelerate's YAML, the DeepSpeed JSON, the command",
                  "the learning rate in the deepspeed json overrides mine; mismatch of deepspeed config and"
                  " TrainingArguments; two accelerate configs, config_file; gpu_ids, num_processes",
                  ("launch-files-contradict",)),
            Cause("FSDP is set to wrap a layer class that this model does not have",
                  "could not find the transformer layer class; fsdp_transformer_layer_cls_to_wrap of another model",
                  ("fsdp-wraps-another-models-layers",)),
            Cause("ms-swift without NPROC_PER_NODE, or a torchtune recipe for a single device: one process",
                  "swift sft on 4 gpus is not faster than one; tune run single_device uses one gpu",
                  ("job-gpus-differ-from-processes",)),
            Cause("the nodes wait at MASTER_ADDR=localhost, each at itself",
                  "RendezvousTimeoutError; two nodes, and no process has started",
                  ("nodes-wait-for-themselves",)),
            Cause("torchrun for several nodes is in the batch script without srun: only the first node starts it",
                  "2-node slurm job sits there until the rendezvous timeout, the second node is idle",
                  ("nodes-wait-for-themselves",)),
            Cause("each node or task starts a run of its own: `srun torchrun --standalone`, or no --nnodes",
                  "each step and evaluation line is printed twice; several nodes are as slow as one; world size is that"
                  " of one node",
                  ("nodes-train-apart",)),
            Cause("every node gets the same number: $SLURM_NODEID is outside of single quotes in the batch"
                  " script, which reads it once, on the first node, where it is 0. Start bash -c '...' by srun, in"
                  " single quotes",
                  "two slurm nodes hang at the start until the time limit, one node works; ranks exist twice, the other"
                  " ranks are missing; node_rank, machine_rank",
                  ("node-rank-read-once",)),
            Cause("each task of Slurm or MPI starts plain `python`: srun sets no RANK, LOCAL_RANK or WORLD_SIZE, so"
                  " that every task trains alone on all rows. Start torchrun once on each node",
                  "went from one to four gpus under slurm, all at 98 %, and an epoch takes as long as before; each line"
                  " of the log is there four times; srun python with several ntasks",
                  ("tasks-train-alone", "processes-train-apart-in-one-log")),
            Cause("each task of a node starts the launcher (--ntasks-per-node or mpirun -np N around torchrun"
                  " or accelerate launch), and all open the same port: one task on each node",
                  "address already in use on any port and any node; EADDRINUSE in a new job; port is taken although"
                  " nothing else runs there",
                  ("launcher-started-by-each-task",)),
            Cause("the container has 64 MB of shared memory (/dev/shm): `shm_size: 16gb` or `ipc: host`",
                  "Error while creating shared memory segment; No space left on device in docker; bus error,"
                  " insufficient shared memory (shm); ncclSystemError in a container",
                  ("container-shared-memory-too-small", "fault-named-in-the-output", "run-ended-in-an-exception")),
            Cause("Unsloth works on one GPU, whatever is shown to it: its banner says `Num GPUs used = 1`. A recent"
                  " release under torchrun or accelerate launch, or Axolotl, LLaMA-Factory or TRL use several",
                  "unsloth on two T4 of Kaggle uses only one gpu; FastLanguageModel, Data Parallel GPUs = 1"),
            Cause("Lightning's devices is not the number of tasks that Slurm starts on a node: --ntasks-per-node must"
                  " equal Trainer(devices=N), with srun before python",
                  "stuck forever after Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4; lightning ddp in a slurm"
                  " job hangs",
                  ("lightning-devices-differ-from-tasks",)),
            Cause("one process works on all GPUs: plain `python` with a Trainer wraps the model in nn.DataParallel."
                  " Start with torchrun or accelerate launch, or set CUDA_VISIBLE_DEVICES=0",
                  "using 4 gpus is slower than one, gpu 0 is much fuller than the rest; Was asked to gather along"
                  " dimension 0; n_gpu 4",
                  ("several-gpus-in-one-process", "fault-named-in-the-output")),
            Cause("one process was started, and the other GPUs are not used",
                  "a single GPU of several is busy and the rest are idle; nvidia-smi shows work on one card",
                  ("gpus-idle", "job-gpus-differ-from-processes")),
            Cause("the machines can't reach one another: NCCL took docker0, virbr0 or lo, or a firewall is between; "
                  "NCCL_SOCKET_IFNAME names the interface",
                  "two nodes hang before the first step; NCCL INFO Bootstrap Using docker0 172.17.0.1; Connect failed",
                  ("fault-named-in-the-output", "run-was-killed")),
            Cause("gradients are not averaged: the forward goes around DDP (`model.module(...)`)",
                  "checksums or weight norms differ from rank to rank; the model is as good as one GPU's; four GPUs"
                  " are no better, or worse, than one",
                  ("ranks-hold-different-weights", "forward-around-the-wrapper")),
            Cause("each process shuffles or splits the rows another way: no seed before rows[rank::world] or "
                  "random_split",
                  "overlapping shards; validation loss too good with several gpus; rows are trained on twice",
                  ("processes-divide-rows-in-different-orders",)),
            Cause("one process leaves the loop alone: early stopping, or a skipped batch, by a loss of its own rows",
                  "hangs after early stopping; one rank printed that it stops; skip nan loss in ddp, then a timeout",
                  ("collective-call-on-one-rank", "batch-skipped-on-one-rank")),
            Cause("a batch is skipped on one rank (no labels, NaN, too long, out of memory): it makes fewer backward"
                  " passes",
                  "hangs at the end of the first epoch, in the evaluation, with an NCCL timeout; runs fine on one gpu;"
                  " continue before backward",
                  ("batch-skipped-on-one-rank", "run-was-killed")),
            Cause("every process deletes, renames or makes the same checkpoint folder",
                  "crash when saving a checkpoint on several gpus, FileNotFoundError or FileExistsError in rmtree or"
                  " makedirs; on one gpu it runs through",
                  ("every-process-changes-the-same-files", "run-ended-in-an-exception")),
            Cause("vLLM, SGLang and TGI use one GPU by default: --tensor-parallel-size N splits a model over N, "
                  "--data-parallel-size N serves N copies",
                  "vllm serve uses only the first gpu although there are four; inference server on one of several"
                  " gpus"),
            Cause("weights or optimizer states are offloaded though they fit the GPU",
                  "steps of half a minute with ZeRO-3 and CPU offload for a small model; many cards, slow",
                  ("offload-without-need",)),
            Cause("shards of ZeRO-3 or FSDP were saved without being gathered",
                  "the checkpoint is tiny; size mismatch, torch.Size([0]) from checkpoint",
                  ("run-ended-in-an-exception",)),
            Cause("4-bit weights under FSDP are stored as uint8 (`bnb_4bit_quant_storage`)",
                  "Cannot flatten integer dtype tensors", ("run-ended-in-an-exception",)),
            Cause("the loss of a step depends on how rows are shared out, since each process takes its own mean",
                  "loss differs with the number of GPUs", ("gradient-depends-on-process-count",)),
            Cause("a call that all processes must make, made by one", "hangs in evaluation or in saving; NCCL timeout",
                  ("collective-call-on-one-rank",)),
            Cause("unequal numbers of batches",
                  "hangs, freezes or stands still at the end of the first epoch with all gpus at 100 %, without a"
                  " message; files or shards of unequal length for each rank",
                  ("ranks-out-of-step", "ddp-hang-or-uneven-ranks", "shards-filtered-apart")),
            Cause("one process tokenizes or maps the rows while the others wait at a barrier, longer than the time-out"
                  " of the process group: tokenize before the launch (save_to_disk), more num_proc, or a longer"
                  " ddp_timeout, init_process_group(timeout=...)",
                  "a timeout before training begins, while the dataset is being prepared; dies during tokenization",
                  ("run-was-killed", "run-ended-in-an-exception")),
            Cause("a part of the model gets no gradient: a head or branch that some batches, or no batch, use. Remove"
                  " it, add 0 x its output, or find_unused_parameters=True",
                  "DDP stops in the second step with an error about parameters, one gpu trains through; Expected to"
                  " have finished reduction in the prior iteration; parameters which did not receive grad",
                  ("layer-without-gradient-under-ddp", "run-ended-in-an-exception")),
            Cause("FSDP joins frozen weights and those of an adapter in one flat parameter: use_orig_params=True, or"
                  " PEFT's fsdp_auto_wrap_policy",
                  "LoRA with FSDP stops on a requires_grad flatten error, full fine-tuning works; Must flatten tensors"
                  " with uniform requires_grad",
                  ("frozen-weights-flattened-with-trained", "run-ended-in-an-exception")),
            Cause("FSDP or torch.distributed.checkpoint saved shards (.distcp), and no file of transformers:"
                  " accelerate merge-weights, or FULL_STATE_DICT for the last save",
                  "the output has only .distcp files; from_pretrained or vllm does not find model.safetensors in the"
                  " folder, although training saved it"),
            Cause("the saved weights have module. before their names, which the plain model does not have",
                  "the tuned model answers exactly like the base; load_state_dict with strict=False",
                  ("wrapper-keys-not-loaded",)),
            Cause("the batch grew with the processes: rows on a GPU x accumulation x processes, and as many "
                  "fewer optimizer"
                  " steps at an unchanged rate",
                  "trained on 8 gpus instead of one, finishes 8x faster but the model is worse; fewer steps "
                  "than on one"
                  " gpu; effective batch size and learning rate with several gpus",
                  ("fewer-steps-than-the-run-beside", "few-steps-of-very-many-rows")),
            Cause("copies from GPU to GPU (P2P) are caught by the IOMMU or ACS: NCCL_P2P_DISABLE=1 proves it",
                  "hangs at step 0 with both or all gpus at 100 %, nothing happens, no error; vllm hangs with tensor"
                  " parallel size 2; IO_PAGE_FAULT in dmesg; stands still after NCCL Init COMPLETE",
                  ("fault-named-in-the-output", "output-stops-in-the-middle")),
            Cause("every process puts its model on GPU 0: no torch.cuda.set_device, or device_map names GPU 0",
                  "all processes are on gpu 0 in nvidia-smi; Duplicate GPU detected; the other gpus are empty",
                  ("processes-share-a-gpu", "device-map-in-a-distributed-script")),
            Cause("a sampler without set_epoch",
                  "the same order of rows in every epoch with DistributedSampler; the loss curve repeats itself from"
                  " the second epoch on, with the same wiggles",
                  ("sampler-repeats-its-order",)),
            Cause("every process writes the same checkpoint file", "a checkpoint saved by several processes is "
                  "corrupted",
                  ("every-process-writes-the-checkpoint",)),
            Cause("the metric counts rows twice that fill up the last batch (gather, not gather_for_metrics)",
                  "accuracy or another metric changes with the number of gpus",
                  ("gathered-rows-count-twice",)),
            Cause("a mixture of experts under ZeRO-3: an expert that no token of a process reaches is not "
                  "gathered there;"
                  " deepspeed.utils.set_z3_leaf_modules(model, [the MoE block]) gathers all of them",
                  "mixtral, qwen moe or deepseek hangs with deepspeed zero3 after some steps"),
            Cause("the processes take different branches of the model under ZeRO-3 or FSDP: a batch without images"
                  " skips the vision tower in one of them, whose layers the others gather. Run the branch on a dummy"
                  " image and add 0 x its output",
                  "ZeRO-3 freezes after some hundred steps at full GPU utilisation, ZeRO-2 on the same data runs"
                  " through; text-only rows among images; py-spy shows _allgather_params"),
            Cause("rank 0 logs its own loss alone, and each process evaluates its part of the rows"
                  " (DistributedSampler): sum loss and tokens over all with all_reduce, then divide",
                  "validation loss on 8 gpus is different from what I get when I evaluate the same checkpoint on one;"
                  " the logged loss jumps; Lightning's self.log without sync_dist",
                  ("evaluation-metric-of-one-process",)),
            Cause("a stream has fewer shards than processes x workers: most workers stop, and each process reads over"
                  " the rows of the others. Write num_shards as a multiple of the GPUs",
                  "GPU utilisation saws between 0 and 100 % as soon as I use 8 GPUs with streaming; Too many dataloader"
                  " workers, max is dataset.num_shards=1",
                  ("fault-named-in-the-output",)),
            Cause("CUDA was used in the notebook before notebook_launcher forks it: restart the kernel, and make model"
                  " and tensors inside of the function that it starts",
                  "notebook_launcher refuses to start because CUDA is already initialized; Kaggle 2xT4; Cannot"
                  " re-initialize CUDA in forked subprocess",
                  ("run-ended-in-an-exception",)),
            Cause("new weights (an adapter, a head, added tokens) are drawn by another seed in each process and never"
                  " made equal: one seed until the model is made, or sync_module_states=True",
                  "FSDP LoRA result is garbage when more than one GPU is used, though the loss seems ok;"
                  " set_seed(42 + rank)",
                  ("ranks-hold-different-weights",)),
            Cause("the run was resumed on another number of GPUs: global_step counts steps of another size, so that"
                  " rows are skipped or repeated. Keep processes x accumulation x batch as it was",
                  "after resuming on 2 rather than 8 GPUs the progress bar is at another epoch and training ends early",
                  ("few-steps-of-very-many-rows",)),
            Cause("each node wrote its part of the checkpoint to its own disk: output_dir on a file system that all"
                  " nodes share, or copy the parts together before resuming",
                  "training over two nodes worked but the checkpoint can't be resumed, rank files are missing;"
                  " bf16_zero_pp_rank_8_mp_rank_00_optim_states.pt not found",
                  ("run-ended-in-an-exception",)),
            Cause("gradients are averaged at each micro-step of an accumulation: no_sync() on all but the last "
                  "leaves it out",
                  "ddp with gradient accumulation is slow; all reduce at every micro step; two nodes over Ethernet are"
                  " slower than one, gradient accumulation does not help",
                  ("gradients-averaged-at-each-micro-batch",)),
            Cause("a scheduler that is stepped by every process", "the learning rate ends early",
                  ("prepared-schedule-length-divided-by-processes", "learning-rate-ended-early")),
            Cause("a hand-written loss that breaks accumulation", "loss differs with accumulation steps",
                  ("custom-loss-breaks-gradient-accumulation", "accumulated-gradient-differs")),
            Cause("the cards are not alike, or one is throttled by its heat: every step waits for the slowest",
                  "8 gpus should give 8x and give 3x; one gpu is hot, SW Thermal Slowdown, clocks of 700 MHz; an A100"
                  " beside an RTX 3090"),
            SHARDED_OVER_NODES,
            Cause("gradients under FSDP1 are clipped by torch.nn.utils.clip_grad_norm_, which takes the norm of each"
                  " process's own part: model.clip_grad_norm_(1.0), or accelerator.clip_grad_norm_",
                  "FSDP training is noisier than DDP; printed grad norms differ between ranks; FullyShardedDataParallel"
                  " in a hand-written loop"),
            Cause("vLLM is started on one of its GPUs: neither --tensor-parallel-size nor --data-parallel-size is"
                  " given",
                  "serving on 4 gpus is not faster; vllm uses only one gpu, the others are idle",
                  ("server-uses-one-of-its-gpus",)),
            Cause("CUDA_VISIBLE_DEVICES of the container, of .env or of the shell hides GPUs that the launch counts on",
                  "invalid device ordinal on ranks 1 to 3 with nproc_per_node=4; device_count() = 1; docker compose;"
                  " uses only one of my GPUs",
                  ("job-gpus-differ-from-processes", "run-ended-in-an-exception")),
        ),
    ),
    Guide(
        "odd-metrics",
        "guides/odd-metrics.md",
        "Odd metrics: too good, too bad, or not comparable",
        ("accuracy too good to be true", "evaluation loss equals training loss", "score is zero",
         "metrics do not match",
         "perplexity differs", "accuracy 0", "eval score lower than published", "benchmark leak", "eval loss rises"),
        "truetune evaluate MODEL --data HELD_OUT",
        (
            Cause("rows of the evaluation are in the training data",
                  "accuracy too good to be true, perfect on the test set, and users see no improvement; the eval loss"
                  " is superb, excellent, nearly the training loss, and on new or unseen questions the model is wrong;"
                  " held-out rows are near duplicates or paraphrases of trained ones, the split leaks",
                  ("train-eval-leak", "sibling-rows-held-out-and-trained", "evaluation-rows-were-trained-on",
                   "memorised-not-learned")),
            Cause("the parser does not read the answers or references",
                  "score or exact match is zero, and the answers look right or correct",
                  ("parser-misses-gold-answers", "answers-look-right-but-do-not-parse")),
            Cause("the parser reads anything", "a good score for empty, shuffled or wrong answers",
                  ("parser-scores-shuffled-golds", "parser-scores-empty-answers")),
            Cause("the prompt, with its options, is scored as a part of the answer",
                  "perfect accuracy for every model, the untrained base too", ("prompt-left-in-answers",)),
            Cause("predictions and labels are shifted by one",
                  "token accuracy or F1 near chance, low, while the eval loss is fine",
                  ("metrics-unshifted",)),
            Cause("evaluated without the chat template", "eval score lower than published",
                  ("eval-without-chat-template", "harness-run-without-chat-template")),
            Cause("the scoring script looks for a mark that the tuned model does not write (#### against \\boxed{})",
                  "accuracy is 0 after fine-tuning, and the answers look right; nothing is parsed",
                  ("pattern-misses-the-answers", "exact-match-measures-form")),
            Cause("the prompt was decoded with the answer: generate returns both",
                  "exact match is 0, predictions begin with the question or with system and user",
                  ("prompt-left-in-answers", "answers-echo-the-prompt")),
            Cause("the loss of the evaluation depends on its batch size, or is that of the training",
                  "eval loss changes with the eval batch size; eval loss equals training loss",
                  ("eval-loss-depends-on-batch-size", "evaluation-measured-on-training-rows")),
            Cause("a perplexity over other tokens: prompts, padding or another tokenizer. Per token it can't be "
                  "compared between models of different tokenizers; nats or bits per byte or character can",
                  "perplexity of two model families or vocabularies compared: which is better?"),
            Cause("the evaluation computes in float16 (fp16_full_eval, .half(), dtype=float16), which ends at 65,504,"
                  " and activations of the model are larger (Gemma 2 and 3, T5; trained in bfloat16): evaluate in"
                  " bfloat16",
                  "eval loss and perplexity are nan for the tuned and for the untouched base model, and were fine"
                  " during training",
                  ("evaluation-overflows-float16", "command-evaluates-overflowing-model-in-float16",
                   "loss-not-finite")),
            Cause("a perplexity that is the mean of exp(loss) over texts or batches, instead of exp of the mean over "
                  "tokens: a few short texts decide it",
                  "perplexity of thousands (41873) while eval_loss is 1.9; mean of exp, average perplexity"),
            Cause("answers are not in the order of the references: prompts were sorted by length, or a batch was "
                  "shuffled, and nothing put them back; or rows were left out before they were joined by position",
                  "exact match of two percent though answers look right; answers belong to other rows; reading the "
                  "predictions file the answers are good, but the scorer gives 3 %",
                  ("rows-joined-after-one-side-changed", "answers-beside-other-references")),
            Cause("the rows of the evaluation are labelled in another way than those of the training: prompts count "
                  "in one loss alone. Encode both by one function, or set train_on_input alike",
                  "eval loss is four times the train loss from the first step on, although both come from the same "
                  "distribution; masking of prompts differs between train and eval",
                  ("evaluation-rows-masked-otherwise", "evaluation-labelled-otherwise")),
            Cause("each row is mostly a text that is the same in all (a long system prompt), and all of its tokens are "
                  "learned: the loss and the token accuracy are those of that text. Learn the answers alone",
                  "loss is 0.02 and token accuracy 99 % after only 50 steps, but the answers are useless",
                  ("prompts-are-learned",)),
            Cause("a field of the prompt gives the answer away: a header, an id, a queue name",
                  "test accuracy 1.0 and 0.61 in production; perfect scores, poor in use"),
            Cause("rows of the evaluation without a label: their loss is 0/0",
                  "eval loss is nan while the training loss is fine",
                  ("truncation-leaves-no-label", "no-supervised-token", "loss-not-finite")),
            Cause("positions with the label -100 (prompts, padding) count as wrong in compute_metrics",
                  "token accuracy 0.14 while eval loss is low and falls; eval accuracy far too low, masked labels",
                  ("metrics-count-ignored-labels",)),
            Cause("a figure is divided by another count than it was added up over: right answers by the number of "
                  "batches, mean losses of batches by the number of rows",
                  "accuracy larger than 1, above 100 %, 11.9; validation loss many times lower than the training loss "
                  "in a hand-written loop",
                  ("metric-divided-by-another-count", "loss-is-a-sum")),
            Cause("the score of extracted fields goes over those that the answer gives: what is missing is not counted",
                  "field accuracy is 98 % and half of the fields are missing in use; precision shown as accuracy",
                  ("answers-leave-fields-out", "score-skips-fields-left-out")),
            Cause("the options of a multiple choice are one token: the first id of each letter is the tokenizer's BOS, "
                  "or the letter has no space before it",
                  "multiple choice accuracy is exactly 25 % or chance for every model; always predicts A",
                  ("answer-option-ids-are-all-bos",)),
            Cause("the model thinks before it answers, and its whole text is compared with the reference",
                  "Qwen3 or R1 scores 0 after fine-tuning; predictions begin with <think>",
                  ("reasoning-scored-with-the-answer", "exact-match-measures-form")),
            Cause("the metric scores logits over the reference (argmax, teacher forcing), and no generated text",
                  "ROUGE or BLEU far too high in training, or an error in compute_metrics; predict_with_generate",
                  ("predictions-are-not-generated",)),
            Cause("labels of an own perplexity script are a copy of padded input_ids: pads are in the loss",
                  "perplexity of thousands, huge, though the trainer's eval_loss is 1.9; pad tokens counted",
                  ("labels-copy-input-ids",)),
            Cause("answers were cut off at max_new_tokens before the final answer that the parser looks for",
                  "accuracy on math or reasoning dropped or is far too low, the steps look right; answers end in "
                  "mid-sentence, finish_reason length",
                  ("answers-are-cut-off", "scored-answers-limited-to-few-tokens")),
            Cause("label names are exchanged between training and evaluation: lists in another order, id2label, or ids"
                  " by list(set(...)), which each process orders otherwise",
                  "accuracy worse than random guessing, than a coin, below chance; near 0 on two classes; "
                  "classes swapped; 0.93 in training and 0.09 in the evaluation script, another number at each start",
                  ("labels-are-exchanged", "label-names-in-another-order", "label-ids-in-no-fixed-order")),
            Cause("token accuracy is measured with the right tokens before each place (teacher forcing), answers are "
                  "generated from the model's own: one wrong token of twenty spoils a long answer (0.95 to the power "
                  "of its tokens). Generate on held-out rows and compare whole answers",
                  "mean_token_accuracy 0.95 and exact match of generated answers 0.2; train accuracy high, "
                  "generation wrong",
                  ("loss-is-better-answers-are-worse",)),
            Cause("answers are sampled (do_sample=True, temperature 1): each evaluation draws others. Score greedy "
                  "answers, or the mean over seeds with its interval",
                  "evaluation gives another score every time I run it; results not reproducible; different "
                  "accuracy each run",
                  ("sampled-answers-scored-once", "greedy-answers-not-repeatable")),
            Cause("the fine-tuning took away what the base could (forgetting): a high rate, many epochs, "
                  "narrow rows, or "
                  "another prompt format than the benchmark's",
                  "MMLU or another benchmark went down after fine-tuning on chats; worse than the base, catastrophic "
                  "forgetting", ("worse-than-its-base", "no-better-than-base")),
            Cause("what is evaluated is not what is trained: the base, a copy, an adapter that is disabled",
                  "eval_loss is exactly the same at every evaluation; eval accuracy never changes",
                  ("eval-never-changes", "evaluated-copy-is-not-trained")),
            Cause("dropout is on in training alone, and the training loss is the mean over steps before the evaluation",
                  "eval loss is lower than the training loss"),
            Cause("long prompts are truncated on the right: the question and the generation prompt are cut off",
                  "accuracy drops for long documents and inputs; truncation=True, max_length in the evaluation",
                  ("prompts-lose-their-end",)),
            Cause("special tokens are in the answers (skip_special_tokens=False): no answer equals its reference",
                  "exact match zero, predictions end with <|im_end|> or </s>", ("role-markers-in-answers",)),
            Cause("the figure is that of one process and its part of the rows: a loader with DistributedSampler, and"
                  " no all_reduce of the sum and the count before rank 0 logs it",
                  "validation loss on 8 gpus is different from the same checkpoint evaluated on one; each rank has its"
                  " own loss; rank 0 logs",
                  ("evaluation-metric-of-one-process",)),
            Cause("every process writes its predictions to one file, which each empties first: the rows of one"
                  " are left",
                  "prediction on 4 gpus gives just a quarter of the rows back; half of the predictions with 2 gpus",
                  ("every-process-changes-the-same-files",)),
            Cause("predictions are gathered process by process (rows[rank::world]), and compared in the "
                  "order of the file",
                  "accuracy is 92% on a single gpu and 27% on four with the same checkpoint",
                  ("rows-joined-after-one-side-changed",)),
            Cause("processes gather the rows that fill up the last batch: they count twice",
                  "more predictions than rows with several GPUs, accelerate; accuracy changes with the number of GPUs",
                  ("gathered-rows-count-twice",)),
            Cause("one class is most of the rows: always saying it has a high accuracy and a low macro F1, "
                  "which is the "
                  "mean over classes. Look at the recall of each class, and at a matrix of confusion",
                  "accuracy 0.94 but macro F1 0.31; macro and micro average differ, imbalanced classes",
                  ("one-answer-to-all", "few-distinct-answers")),
            Cause("the reference is searched inside the answer (`gold in answer`): a letter, a digit or a short word "
                  "is in nearly any text, and a long answer that names all options is right each time. Compare "
                  "parsed answers", "accuracy 97 % but answers read wrong; substring match, contains",
                  ("parser-scores-shuffled-golds", "prompt-left-in-answers")),
            Cause("the losses of two runs are means over different tokens or rows: assistant_only_loss,"
                  " completion_only_loss, train_on_inputs, label smoothing or the evaluation rows differ. Evaluate both"
                  " in one way, or compare answers",
                  "run B has a higher eval_loss than run A but its answers are better; are two losses comparable;"
                  " eval_loss or perplexity of two runs, settings differ, people prefer the other",
                  ("run-losses-not-comparable",)),
            Cause("two models were measured in two ways: other few-shot examples, --limit or max_samples, or with and"
                  " without the chat template. Measure both alike, on all rows",
                  "lm_eval or lighteval score of the tuned model is lower or higher than the base's; --num_fewshot,"
                  " --limit 100, apply_chat_template differ between runs; not comparable to the leaderboard",
                  ("harness-runs-not-comparable", "harness-run-without-chat-template")),
            Cause("a figure is called macro and averaged by micro, or the other way round: with one label a row"
                  " the micro"
                  " F1 is the accuracy",
                  "macro F1 equals accuracy exactly; F1 differs between my script and the sklearn report or a"
                  " colleague's"
                  " table; average=micro, macro or weighted",
                  ("metric-average-named-as-another",)),
            Cause("rows whose answer can't be parsed are skipped before they are counted (continue above total += 1)",
                  "accuracy too high, 100 percent; the number of scored rows is smaller than the test set; None or"
                  " unparsed answers are dropped",
                  ("metric-divided-by-another-count",)),
            Cause("the LLM judge prefers a place: our answer is always first (A), and each pair is judged in one"
                  " order."
                  " Judge both orders, and count a win only where both name the same answer",
                  "LLM judge, pairwise verdicts, win rate: the fine-tune beats the base and the base beats the"
                  " fine-tune;"
                  " a model wins against itself; position bias, answer A wins; users see no difference",
                  ("judge-prefers-a-place", "judge-sees-one-order")),
            Cause("the LLM judge prefers long answers, its own family's style, or what its prompt gives away: the"
                  " model's name or the reference; verdicts that can't be parsed count as a win or a loss",
                  "judge win rate rose with the length of answers; AlpacaEval, MT-Bench, arena; verbosity or length"
                  " bias,"
                  " self-preference; length-controlled win rate; judge scores do not match people",
                  ("judge-prefers-longer-answers",)),
            Cause("both sets of answers come from one model: the engine or the request names no adapter (vLLM's"
                  " enable_lora without lora_request), or the base was asked twice",
                  "fine-tuned and base have exactly the same accuracy, identical predictions word for word; adapter"
                  " makes"
                  " no difference; in-process vLLM LLM(enable_lora=True)",
                  ("two-models-answer-alike", "base-asked-instead", "client-asks-for-the-base")),
            Cause("answers that are no valid JSON are skipped (except: continue), and the score is over the readable"
                  " ones",
                  "exact match 97 % on extraction in our test, half of the documents fail in production;"
                  " JSONDecodeError,"
                  " invalid JSON, JSON twice",
                  ("answers-invalid-json-unlike-references", "metric-divided-by-another-count")),
            Cause("right answers are assigned and not added up in the loop: the figure is that of the last batch",
                  "validation accuracy jumps between 0.4, 0.6 and 1.0 from epoch to epoch, always a multiple of one"
                  " share; own evaluation loop",
                  ("metric-divided-by-another-count",)),
            Cause("num_return_sequences gives several answers for each prompt in one list, and zip pairs them with the"
                  " references one by one",
                  "accuracy near 0 or chance with num_return_sequences 4; more predictions than references; pass@k",
                  ("answers-beside-other-references",)),
            Cause("windows of a strided perplexity overlap, and their labels are all of their ids: set those of the"
                  " overlap to -100",
                  "perplexity is higher than that of lm_eval or the paper on the same text; stride, sliding window,"
                  " max_length",
                  ("perplexity-not-weighted-by-tokens",)),
            Cause("the benchmark's test rows are in the training mix (GSM8K, MMLU, HumanEval in collected "
                  "instruction sets): search some of its questions in your rows, and take out rows that share 13 "
                  "words in a row",
                  "GSM8K or another benchmark jumped from 45 to 88 with our sft set, own problems did not improve; "
                  "contamination, decontaminate",
                  ("train-eval-leak",)),
            FORM_REWARD,
            Cause("the references of a reward are taken by their position in the batch, or its completions are "
                  "messages that are read as text",
                  "grpo accuracy reward stays at chance or zero, while the function works in a test with strings",
                  ("reward-takes-answers-by-position", "reward-reads-messages-as-text", "reward-is-never-given")),
            Cause("the score of the other class is taken: probs[:, 0] where column 1 is the positive class",
                  "AUC of 0.06, far below 0.5; roc_auc_score; ranking upside down"),
            Cause("predictions and true labels are given to a metric in each other's place",
                  "precision and recall look swapped; weighted F1 differs from my colleague's; y_true and y_pred",
                  ("metric-sides-exchanged",)),
            Cause("rows are divided by hash() of a text, which differs in each process: zlib.crc32, or save the parts",
                  "eval score differs in each run; after resuming the eval loss is far lower; PYTHONHASHSEED",
                  ("split-by-salted-hash",)),
            Cause("the area under a curve is computed from predicted classes (argmax, round, p > 0.5) and not from"
                  " scores",
                  "AUC or average precision is much lower than in the paper although accuracy is equal; roc_auc_score",
                  ("curve-of-hard-labels",)),
            Cause("what was evaluated is not what is deployed: the adapter on a 4-bit base in the notebook, a merged "
                  "and quantized file (Q2_K, Q4) in use. Run the same test on the file that is served",
                  "F1 0.89 in the notebook and 0.71 for the same test in Ollama or llama.cpp; gguf",
                  ("merged-into-4bit-or-low-precision",)),
            Cause("a pattern takes the first letter or digit that it meets: A of `Answer: C`, 1 of `10`; or the first"
                  " number of the working, where the last one is the answer",
                  "my script says the model chooses A in 90 % of the cases, reading says otherwise; the best answers "
                  "get 1 point out of 10; first capital letter, first digit; accuracy 0.0 after fine-tuning on math,"
                  " most answers look right when I read them",
                  ("pattern-takes-part-of-a-word", "pattern-takes-another-match")),
            Cause("code or JSON is between ``` fences, and exec or json.loads gets the fences",
                  "pass@1 is 0.0, HumanEval or MBPP 0 after chat tuning; SyntaxError for every answer; JSONDecodeError"
                  " for every answer; markdown code block",
                  ("pattern-misses-the-answers",)),
            Cause("labels hold -100 and are decoded as they are: replace it by the pad token first",
                  "OverflowError out of range integral type conversion attempted in batch_decode;"
                  " compute_metrics, ROUGE",
                  ("metrics-count-ignored-labels", "run-ended-in-an-exception")),
            Cause("sacrebleu.corpus_bleu takes a list of reference streams: corpus_bleu(predictions, [references])",
                  "BLEU is 100 or near zero though translations differ or are right; hyp_len of one sentence;"
                  " sacrebleu, chrF", ("references-nested-wrongly",)),
            Cause("logits are compared with a threshold for probabilities: logits > 0.5 without sigmoid is a"
                  " probability of 0.62; compare with 0",
                  "multi-label recall is low, few labels predicted; threshold 0.5; BCEWithLogitsLoss"),
            Cause("accuracy or loss is computed on a part of the rows, in the order of the file (test[:100],"
                  " select(range(60)), max_samples): a sorted file begins with rows of one kind, and the error of 100"
                  " rows is ten points",
                  "score changes with the number of rows that are evaluated; subset, first 100 examples; the validation"
                  " loss is many times lower than the training loss, far too good",
                  ("harness-runs-not-comparable", "head-of-a-sorted-file-evaluated",
                   "settings-evaluate-head-of-sorted-file")),
            Cause("rows were repeated, or others made of them, before they were divided: oversampling, augmentation,"
                  " back-translation. Copies are on both sides: divide first",
                  "validation accuracy 0.97, in production 0.70; the metric can't be true; minority classes were"
                  " oversampled, balanced, upsampled, RandomOverSampler, random.choices",
                  ("rows-repeated-before-the-split", "train-eval-leak")),
            Cause("exact match compares letter for letter: case, a full stop, spaces or a thinking block differ. "
                  "Normalise both sides, or name a parser",
                  "exact match 0 although only case or punctuation differ; <think> block in predictions",
                  ("exact-match-measures-form",)),
            Cause("rows of one document, conversation or patient are split one by one: neighbours of a test row were"
                  " trained on; split by that column (GroupShuffleSplit)",
                  "internal test F1 0.93, on documents from a new customer 0.61; train_test_split of chunks; good in"
                  " our test, worse on new patients; conversations were made rows of turns before the split;"
                  " validation answers word for word right, poor on new tickets",
                  ("groups-on-both-sides-of-a-split", "sibling-rows-held-out-and-trained", "train-eval-leak")),
            Cause("the best of many checkpoints was chosen on the test rows, or these are few: with 30 rows one"
                  " standard error is 7 points, and the best of 12 is the luckiest. Choose on others, and report on the"
                  " test once",
                  "the best checkpoint on our test set is no better in production; small test set of 20 to 50 rows;"
                  " scores 0.733, 0.767, 0.800; selection on the test set"),
            Cause("the script loads a path that is written in it, and not the checkpoint that it is given",
                  "the score is the same for every checkpoint, 41.3, as if training did nothing after step 100;"
                  " hardcoded path, --ckpt has no effect",
                  ("model-argument-never-loaded",)),
            Cause("answers are read from a file of an earlier model where it is there: its name does not hold the"
                  " model",
                  "whatever I train, the evaluation gives 67.4; cached predictions, preds.jsonl is old; the same score"
                  " to the last digit",
                  ("answer-cache-shared-by-models", "checkpoints-evaluated-from-one-cache")),
            Cause("the reference is in the prompt: whole messages were rendered with add_generation_prompt",
                  "ROUGE 0.98 with generation, the output repeats or copies the answer",
                  ("reference-stands-in-the-prompt",)),
            Cause("requests to the judge that fail (429, a wrong key) are scored by a constant of the except branch",
                  "every model gets exactly 5.0 from the judge; all judge scores are the same or tie; Too Many"
                  " Requests",
                  ("failed-request-gets-a-score",)),
            Cause("the first capital letter A to D is taken as the answer: that of Answer, After, Because or A closer"
                  " look. Read it after a mark: r'\\b(?:answer is|Answer:)\\s*\\(?([A-D])\\b'",
                  "my script says that the model chooses A in nearly 90 % of the cases, but reading them that's not so;"
                  " multiple choice, re.search of [ABCD]"),
            Cause("the classifier's pad_token_id is not the id that the tokenizer pads with: in a padded batch the"
                  " logit of a pad is read. Set model.config.pad_token_id = tokenizer.pad_token_id",
                  "Llama or Qwen sequence classifier is at chance in batched evaluation and good with batch size 1"),
            Cause("references are numbers or dates in another form (1,234.00 against 1234, DD/MM against MM/DD): right"
                  " answers count as wrong. Normalise both, or score with --parser number",
                  "the metric is stuck at 62 % whatever I train, and I find almost no real mistakes; thousands"
                  " separators, gold labels in another format",
                  ("exact-match-measures-form",)),
            Cause("ROUGE's default tokenizer deletes all but a-z and digits: give it one of words or characters",
                  "ROUGE is zero for nearly all summaries even if they match; CJK, Japanese, Arabic, Russian text",
                  ("rouge-drops-non-latin-text",)),
            Cause("the training loss is logged as the sum of the micro-batches of a step, and the validation loss is a"
                  " mean: divide by the accumulation steps",
                  "training loss is about 10 and validation 1.2, is that overfitting in reverse; training loss is eight"
                  " times higher than validation; own loop with gradient accumulation"),
            Cause("the training loss is logged after it was divided by the accumulation steps (loss / n), and the"
                  " validation loss is not divided",
                  "training loss is 0.11 and eval loss is 1.8 from the start, looks like overfitting; train loss is 16"
                  " times lower than eval loss; own loop with gradient accumulation",
                  ("logged-loss-divided",)),
            Cause("text that the chat template made is tokenized with special tokens again: the prompt begins with two"
                  " BOS. tokenizer(text, add_special_tokens=False), or apply_chat_template(tokenize=True)",
                  "scores with my script are some points lower than those from the vLLM endpoint for the same model;"
                  " double BOS, 128000 twice",
                  ("rendered-text-tokenized-again",)),
            Cause("no token of the evaluation rows has a label: their prompts fill max_length, or the mask hides all."
                  " The mean over none is nan",
                  "train loss is normal, but eval_loss is nan in each evaluation; eval_loss 0",
                  ("loss-not-finite", "truncation-leaves-no-label")),
            Cause("packed rows are longer and hold other contexts than single rows: the loss of an evaluation with"
                  " packing and of one without are not comparable. Evaluate with eval_packing=False in both",
                  "validation loss jumps when I switch packing on, with the same data and model"),
            Cause("one class is nearly everything (O in NER): accuracy is that of naming it always, and F1 says what is"
                  " found. Look at the labels of subwords, at cut rows, and train longer or weigh the classes",
                  "NER accuracy 96 % but F1 is 0.0; seqeval, no predicted samples; imbalanced labels",
                  ("score-at-worst-falling-or-nan",)),
            Cause("what the sandbox could not run counts as wrong: time-outs on a loaded machine, packages that are not"
                  " installed. Fewer workers, a longer time-out, the packages of the reference solutions",
                  "the same samples score 61 on one machine and 38 on another; timed out, ModuleNotFoundError in the"
                  " results; pass@1 depends on the machine"),
            Cause("several runs write into one log: the same WANDB_RUN_ID or folder of TensorBoard, or a resumed run"
                  " that counts its steps from 0",
                  "the loss curve goes back and forth in zigzag and eval points overlap at the same step; Tried to log"
                  " to step that is less than the current step; several events.out.tfevents files",
                  ("fault-named-in-the-output",)),
            Cause("a batch of prompts is padded on the right, so that new tokens follow the pads: set padding_side to"
                  " left for models that are decoders",
                  "accuracy of the evaluation changes with its batch size, 0.91 with 1 and 0.65 with 16; generation in"
                  " batches is worse than one by one",
                  ("right-padding-at-generation", "padded-batch-answers-otherwise")),
            Cause("a stop string ends answers before their result: until or stop has a line break, a full stop or a"
                  " word that the working has",
                  "answers end after the first line or paragraph; empty predictions; until, stop, stop_sequences;"
                  " finish reason stop, and the score is 0 or low",
                  ("answers-are-cut-off",)),
            Cause("the penalty on repetition is on in the evaluation: digits, JSON and copied names repeat, and become"
                  " unlikely. Set repetition_penalty to 1.0, and no_repeat_ngram_size to 0",
                  "wrong digits, missing quotes or brackets, names changed; repetition_penalty, frequency_penalty,"
                  " no_repeat_ngram_size; better in another program"),
            Cause("model.eval() is not called: dropout is on while the rows are evaluated",
                  "own loop: the accuracy or the loss of the same rows and model differs in each evaluation, and is"
                  " worse than after loading; not deterministic",
                  ("model-left-in-training-mode",)),
            Cause("the best model is chosen in the wrong direction: greater_is_better, mode or a comparison does not"
                  " fit the metric, so that the worst checkpoint is kept or loaded",
                  "F1 rises to 0.79 during training, and the final evaluation or the saved best model says 0.43;"
                  " load_best_model_at_end, metric_for_best_model, early stopping stops at once",
                  ("best-model-direction-inverted", "worst-checkpoint-kept", "best-checkpoint-is-worst")),
            Cause("a fine-tune that is no better than chance of the draw", "a point more or less between runs",
                  ("no-better-than-base",)),
        ),
    ),
    Guide(
        "slow-training",
        "guides/slow-training.md",
        "Slow training",
        ("training is slow", "a step takes 40 seconds", "fine-tuning takes too long", "an epoch takes hours",
         "LoRA training is slow", "seconds per iteration are high, s/it", "the run takes five hours for 468 steps"),
        "truetune check .",
        (
            Cause("an evaluation, or saving, too often or on too many rows (eval_steps, val_set_size,"
                  " save_steps), or one "
                  "that generates answers (predict_with_generate)",
                  "the run takes hours though a training step needs seconds; eval_runtime of minutes at"
                  " each evaluation; "
                  "steps and hours do not fit together",
                  ("evaluation-takes-the-time", "evaluated-more-than-trained")),
            Cause("weights or optimizer are offloaded to the CPU (offload_param, offload_optimizer,"
                  " fsdp_offload_params), "
                  "though they fit the GPU",
                  "DeepSpeed or ZeRO-3 training step takes 40 seconds, LoRA of a 7B on an A100; GPUs at 10"
                  " percent and nearly "
                  "empty",
                  ("offloaded-though-it-fits", "offload-without-need", "gpus-mostly-idle")),
            Cause("rows are padded to max_length: short rows are computed as the longest that may be; padding=True, or "
                  "packing",
                  "short rows of 100 tokens take 25 seconds per training step; padding='max_length' in the"
                  " tokenize function",
                  ("rows-padded-to-a-fixed-length", "rows-padded-to-the-limit")),
            Cause("the kernels of a model's linear attention (flash-linear-attention, causal-conv1d,"
                  " mamba-ssm) are not "
                  "installed",
                  "the fast path is not available; Qwen3.5, Qwen3-Next or Mamba trains five times slower"
                  " than another model",
                  ("fault-named-in-the-output",)),
            Cause("rows are tokenized, or images decoded, in the data loader of one process"
                  " (dataloader_num_workers 0), or "
                  "by a collator that is bound to one CPU",
                  "GPU utilization goes up and down while training; one CPU core is at 100 percent; data loading",
                  ("gpus-mostly-idle",)),
            Cause("gradient checkpointing, although the memory is free: a fourth to a third of each step",
                  "gradient_checkpointing on, and nvidia-smi shows most memory free while training",
                  ("gpus-mostly-idle",)),
            Cause("a tiny batch with many accumulation steps, although memory is free: the GPU waits for"
                  " the CPU between "
                  "kernels",
                  "per_device_train_batch_size 1, gradient_accumulation_steps 64, small model, low GPU utilization in "
                  "training",
                  ("gpus-mostly-idle",)),
            Cause("the attention is computed eagerly (attn_implementation='eager'): sdpa or flash_attention_2",
                  "long sequences train slowly; with 2k context it was fine, with 8k context each step is ten times"
                  " slower; attn_implementation eager; flash attention is not installed",
                  ("attention-computed-eagerly",)),
            Cause("weights and matrix products in float32, without bf16 and TF32",
                  "trains in float32 or fp32 on an A100; no bf16, fp16 or tf32 in the training arguments; a colleague"
                  " gets 3x my tokens per second on the same card with the same model",
                  ("training-computed-in-float32", "tensor-cores-stand-idle", "bf16-is-emulated",
                   "four-bit-computed-in-float32")),
            Cause("torch.compile compiles again for each shape of a batch",
                  "recompile_limit; torch_compile training is slower than without; each new length takes a minute",
                  ("compiled-again-for-each-shape",)),
            Cause("gradients cross a slow network, or PCIe without peer access, at each micro step:"
                  " no_sync, ZeRO-2 instead of "
                  "ZeRO-3, DDP for an adapter",
                  "two nodes train slower than one; no NVLink or InfiniBand; NCCL over sockets",
                  ("gradients-cross-a-slow-network", "nccl-transport-switched-off", "same-steps-on-more-gpus")),
            Cause("one GPU of several works, or GPUs one after another (device_map='auto')",
                  "only GPU 0 is used in training; others are idle at 0 percent",
                  ("gpus-mostly-idle", "several-gpus-in-one-process", "gpus-idle")),
            Cause("samples are generated, or tables logged, at each step (a callback with wandb, logging_steps 1)",
                  "a callback generates in each logging step; wandb table of completions",
                  ("evaluation-takes-the-time", "generation-at-each-training-step",
                   "evaluation-at-each-training-step")),
            Cause("rows or checkpoints lie on a slow disk or a network file system",
                  "the first steps of training are slow, saving a checkpoint takes minutes; NFS, Lustre, Google Drive",
                  ("evaluation-takes-the-time",)),
            Cause("the run became slower: another process uses the GPU, or it is throttled",
                  "the training steps were fast at first and are slow now; sometimes the training is quick, at other"
                  " times of the day it is twice as slow; ollama or another user on the same gpu; thermal slowdown,"
                  " power cap",
                  ("training-slows-down",)),
            Cause("the completions of GRPO or RLOO are generated by transformers inside of the trainer, without an"
                  " engine: use_vllm=True with vllm_mode='colocate', or a server",
                  "GRPO training is slow: a step takes two minutes, GPU at 30 percent; use_vllm is not set;"
                  " transformers.generate takes most of step_time; rollouts, max_completion_length",
                  ("generation-takes-the-steps",)),
            Cause("CUDA_LAUNCH_BLOCKING=1, a profiler or anomaly detection is still set",
                  "training is slow since debugging a CUDA error; training became slow after profiling, with_stack;"
                  " after I fixed the NaN problem the training is only half as fast; set_detect_anomaly",
                  ("debugging-left-on", "variables-that-hurt")),
            Cause("torch.cuda.empty_cache() and gc.collect() run in each step: the step waits for the GPU, and memory"
                  " is asked of the driver again",
                  "memory is fine since I clean up, but the loop has become awfully slow; empty_cache after every"
                  " batch",
                  ("cache-emptied-at-each-step",)),
            Cause("a resumed run first reads and throws away the batches that it had trained: ignore_data_skip=True,"
                  " or a loader that keeps its place",
                  "after resuming nothing happens for hours, GPU at 0 percent; Will skip the first epochs then the"
                  " first batches; resume_from_checkpoint with a stream",
                  ("fault-named-in-the-output",)),
            Cause("torch is a build without CUDA (its version ends in +cpu): everything runs on the CPU, without an"
                  " error",
                  "a step takes minutes on a good card, no error; device: cpu, n_gpu: 0; torch +cpu in pip freeze",
                  ("fault-named-in-the-output", "gpu-not-used-by-torch")),
            Cause("Windows and WSL2 move what does not fit the GPU into the computer's memory, without an out-of-memory"
                  " error: a smaller batch, and in the driver's settings `CUDA - Sysmem Fallback Policy: Prefer No"
                  " Sysmem Fallback`",
                  "a slightly bigger batch is suddenly 30 times slower; Shared GPU memory in the task manager;"
                  " dedicated memory is full; WSL2, Windows"),
            Cause("rows are tokenized one at a time, or on one CPU core: dataset.map without batched=True and num_proc,"
                  " a tokenizer with use_fast=False, or overwrite_cache with one worker. Under torchrun, one rank maps"
                  " (main_process_first) and the others read its cache",
                  "tokenizing takes longer than the training itself; LLaMA-Factory sits at running tokenizer on dataset"
                  " for an hour before anything trains; map does a hundred examples per second; preparation takes an"
                  " hour on the 8 gpu box, 5 minutes on a single gpu",
                  ("rows-prepared-slowly",)),
            Cause("datasets can't hash the mapped function (it holds a lock, a client or another live object): its"
                  " cache is never found again. Make what it needs inside of it, or save_to_disk once",
                  "always processes the dataset again for an hour although nothing changed; couldn't be hashed"
                  " properly, a random hash was used; many cache-*.arrow files",
                  ("fault-named-in-the-output",)),
            Cause("whole checkpoints are written too often: the states of Adam are several times the weights. A larger"
                  " save_steps, or save_only_model=True where nobody resumes",
                  "every couple of minutes the training hangs for a long while and continues; save_steps 20,"
                  " optimizer.pt or global_step folders of 60 GB",
                  ("evaluation-takes-the-time",)),
            Cause("each checkpoint is uploaded, and the next waits for it (push_to_hub with hub_strategy every_save or"
                  " all_checkpoints): hub_strategy='end'",
                  "training stalls again and again with some upload bar; push_to_hub, save_steps"),
            Cause("the evaluation keeps the logits of the whole vocabulary for each token, and copies them to the CPU:"
                  " preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)",
                  "training is fast but the evaluation crawls and gets slower and slower; compute_metrics,"
                  " eval_accumulation_steps, RAM grows",
                  ("evaluation-keeps-all-logits",)),
            Cause("the rows are hundreds of thousands of small files, each opened for itself: pack them (Arrow,"
                  " parquet, WebDataset tar), or copy them to the node's own disk",
                  "the first epoch is super slow, a second run on the same node is faster; json or png files on NFS or"
                  " Lustre; open in __getitem__"),
            Cause("a stream reads its shards over the network while it trains: download the dataset once, or more"
                  " dataloader workers with prefetch",
                  "the step time varies wildly, sometimes one second, sometimes a minute; streaming=True; Retrying in"
                  " 1s"),
            Cause("a whole column is made a list for each row: self.ds['input_ids'][i] (datasets before 4). Read the"
                  " row first: self.ds[i]['input_ids']",
                  "a data set of 500 rows is quick, with 200k rows one batch takes half a minute; __getitem__ of my own"
                  " Dataset class"),
            Cause("photos are trained at their full size, with thousands of image tokens each: max_pixels in the"
                  " processor, or smaller images",
                  "fine-tuning on 1000 photos takes days, the demo images went through quickly; Qwen2.5-VL, vision,"
                  " image_grid_thw, min_pixels"),
            Cause("DPO runs a second whole model as the reference in each step: precompute_ref_log_probs=True, or with"
                  " an adapter no ref_model (its base is the reference)",
                  "DPO is nearly three times as slow as my SFT with the same number of rows; ref_model"),
            Cause("lora_dropout above 0, or a bias, switches off Unsloth's fast kernels for LoRA: lora_dropout=0,"
                  " bias='none'",
                  "Unsloth promises 2x but I see the same speed as with normal PEFT; patched layers with 0 QKV layers",
                  ("fault-named-in-the-output",)),
            Cause("weights are held in 4 bits, although 16 bits fit: they are dequantized in each pass. LoRA on"
                  " bfloat16 weights",
                  "QLoRA is slower than LoRA, half the steps per second; load_in_4bit on an A100 or H100 with free"
                  " memory"),
            SHARDED_OVER_NODES,
            Cause("DDP looks for unused weights at every step (ddp_find_unused_parameters=True), and there are none",
                  "DDP LoRA runs with a warning and is slower; find_unused_parameters=True was specified",
                  ("fault-named-in-the-output",)),
        ),
    ),
    Guide(
        "slow-generation",
        "guides/slow-generation.md",
        "Slow generation",
        ("generation is slow", "inference slow after fine-tuning", "few tokens per second",
         "slower than the base model",
         "each token takes longer"),
        "truetune sample RUN --diagnose",
        (
            Cause("the cache is off (`use_cache`): each token computes the whole text again",
                  "each token takes longer than the one before; my own generation loop without past_key_values"
                  " gets slower"
                  " with every new token",
                  ("use-cache-saved-off", "settings-make-generation-slow", "kv-cache-left-off")),
            Cause("answers that never stop: each hits max_new_tokens", "short answers take as long as long ones",
                  ("answers-never-stop",)),
            Cause("weights saved or merged in float32: twice the bytes for each token. `dtype` in config.json says it",
                  "the merged model is twice as large on disk as the base (30 GB instead of 15) and half as fast",
                  ("float32-weights-of-16-bit-base", "dtype-differs-from-config")),
            Cause("the model is loaded in float32: from_pretrained without a dtype takes it before transformers 5, and"
                  " twice the bytes are read for each token. dtype='bfloat16'",
                  "inference takes twice the memory and twice the time that others report for a 7B; no torch_dtype in"
                  " from_pretrained, float32",
                  ("generation-in-a-slow-dtype",)),
            Cause("prompts padded to max_length: each short prompt is computed as the longest that may be; "
                  "padding=True pads to the longest of the batch",
                  "seconds per question with short prompts; prompts are padded to max_length (padding='max_length')"),
            Cause("the server's key-value cache is too small: requests are preempted and computed again",
                  "vLLM: preempted, RECOMPUTE, waiting requests, GPU KV cache usage near 100 %"),
            Cause("one row or prompt is asked at a time, in a loop of a script, or at a server that runs one sequence"
                  " at a time",
                  "requests are served sequentially: users wait for one another in vLLM, low throughput; a "
                  "pipeline takes "
                  "seconds per row, thousands of rows take hours; gpu utilization of 20 percent while generating",
                  ("generation-row-by-row", "server-generates-slowly")),
            Cause("the model was left in training mode, with checkpointing", "slow after training in the same script",
                  ("model-left-in-training-mode", "kv-cache-left-off")),
            Cause("an adapter that is not merged; with DoRA the norms of all adapted weights at each pass",
                  "slower than the base model; DoRA served behind an API"),
            Cause("an adapter is computed beside its base: two small products more in each layer, for each token."
                  " merge_and_unload() before generate, or serve what it saves",
                  "the fine-tuned one has half the tokens per second of the original; PeftModel without"
                  " merge_and_unload, LoRA on all linear layers"),
            Cause("the server runs without CUDA graphs (--enforce-eager, enforce_eager=True, --disable-cuda-graph): "
                  "the CPU starts each kernel of each token",
                  "vLLM or SGLang gives only 12 tokens per second for one request on an A100 or H100; enforce_eager",
                  ("server-generates-slowly",)),
            Cause("weights that are offloaded, or on the CPU beside a GPU", "few tokens per second, the GPU is idle",
                  ("gpu-not-used-by-torch", "server-gets-no-gpu")),
            Cause("ZeRO-3 holds the weights in parts, and each token gathers them (predict_with_generate, generate)",
                  "predict or evaluation with generate takes hours under DeepSpeed ZeRO-3; do_predict on several GPUs",
                  ("zero3-gathers-weights-for-each-token", "generation-under-zero3")),
            Cause("a quantized model that computes in float32 (`bnb_4bit_compute_dtype`), or dequantizes at each token",
                  "a 4-bit model generates slower than bf16", ("four-bit-computed-in-float32",)),
            Cause("LLM.int8 (load_in_8bit): it multiplies twice at every layer. bfloat16 where it fits, else 4 bits",
                  "an 8-bit model (bitsandbytes) is slower than fp16 or bf16", ("generation-in-a-slow-dtype",)),
            Cause("the model was never moved to the GPU, and runs on the CPU: no device_map, no .to('cuda')",
                  "nvidia-smi shows 0% and no process while the script generates; few tokens per second, the GPU is "
                  "free or idle, the CPU at 1600%",
                  ("model-left-on-the-cpu", "gpu-not-used-by-torch")),
            Cause("llama.cpp or llama-cpp-python was built without CUDA: -ngl is ignored and all runs on the CPU",
                  "llama.cpp, GGUF or ollama is slow on a GPU; no usable GPU found; compiled without GPU support",
                  ("llama-cpp-built-for-the-cpu",)),
            Cause("the context (num_ctx, -c, --max-model-len) is so long that its cache takes the GPU, and layers stay"
                  " on the CPU: lower it, or the requests at once (OLLAMA_NUM_PARALLEL), quantize the cache",
                  "ollama ps shows 48%/52% CPU/GPU, with a SIZE far above the file's; num_ctx 131072; KV cache",
                  ("modelfile-parameters-unfit",)),
            Cause("layers that do not fit the GPU are left on the CPU or offloaded: a smaller quantization",
                  "ollama ps shows 48%/52% CPU/GPU; offloaded 29/49 layers to GPU; on the meta device, "
                  "offloaded to the cpu or disk",
                  ("offload-without-need",)),
            Cause("generate after the training: the model is still in training mode with gradient checkpointing, and "
                  "keeps no cache: model.eval(), model.gradient_checkpointing_disable()",
                  "generation after trainer.train() is ten times slower than before; Caching is incompatible with "
                  "gradient checkpointing; past_key_values=None; use_cache=False",
                  ("kv-cache-left-off",)),
            Cause("the model is loaded, or merged, again for each request or row, inside of the handler or the loop",
                  "seconds before the first token of every request; loading checkpoint shards each time",
                  ("model-loaded-for-each-answer", "server-loads-for-each-request")),
            Cause("a long prompt is computed again for each request: the server does not keep the cache of a "
                  "prefix that "
                  "all share (vLLM: --enable-prefix-caching; no part of it may change, a date for one)",
                  "time to first token is seconds; long system prompt of thousands of tokens in every request"),
            Cause("the client waits for each answer before it sends the next request",
                  "vLLM throughput is low, only one request running: Running: 1 reqs, Waiting: 0 reqs",
                  ("server-asked-one-by-one", "generation-row-by-row")),
            Cause("keep_alive is 0 (or OLLAMA_KEEP_ALIVE=0): Ollama unloads the model after each answer",
                  "ollama: load_duration of seconds in each request; first token slow every time, fast within one chat",
                  ("model-loaded-for-each-answer", "server-loads-for-each-request")),
            Cause("the server answers one request at a time: OLLAMA_NUM_PARALLEL=1, --max-num-seqs 1, -np 1",
                  "ollama or llama.cpp with several users: each waits, time grows with the number of users;"
                  " throughput in"
                  " total stays the same",
                  ("server-generates-slowly",)),
            Cause("an async handler (FastAPI) calls generate itself and blocks the event loop: def,"
                  " asyncio.to_thread, or"
                  " vLLM",
                  "fastapi with transformers: concurrent requests wait in line, health check times out during"
                  " generation",
                  ("generation-row-by-row",)),
            Cause("CUDA_LAUNCH_BLOCKING=1 is still set: each kernel is waited for",
                  "slow since debugging a CUDA error; environment variable, export in the script",
                  ("variables-that-hurt",)),
            Cause("torch.compile or a static cache compiles again whenever a prompt has another length",
                  "first answers take a minute each; recompile_limit, cache_implementation static; compiled"
                  " generation is"
                  " slower",
                  ("fault-named-in-the-output",)),
            Cause("beam search: each token is computed once for each beam (num_beams)",
                  "summaries or translations take 40 seconds each; num_beams",
                  ("generation-settings-distort-answers",)),
            Cause("speculative decoding whose drafts are refused: the draft model does not fit the tuned one",
                  "speculative decoding is slower than without; draft acceptance rate is low; MTP, EAGLE, draft model",
                  ("fault-named-in-the-output",)),
            Cause("a quantization without a fast kernel: bitsandbytes in vLLM, AWQ or GPTQ without Marlin or compiled "
                  "kernels",
                  "an AWQ, GPTQ or bitsandbytes model is slower than bf16 in vLLM; CUDA extension not installed",
                  ("server-generates-slowly", "fault-named-in-the-output")),
            Cause("device_map='auto' on several GPUs: layers run one GPU after another, and each waits for the others. "
                  "A model that fits one GPU belongs on one; else vLLM with --tensor-parallel-size",
                  "two or four GPUs are no faster than one for inference; each GPU at 25 percent utilization; "
                  "device_map auto"),
            Cause("a model that one card holds is split over several that PCIe joins (--tensor-parallel-size): they"
                  " exchange results in every layer. --data-parallel-size N serves N copies",
                  "vllm throughput on 4 gpus is lower than on one; Custom allreduce is disabled, "
                  "PCIe-only GPUs, no nvlink"),
            Cause("a batch of generate ends when its longest answer does: one answer that hits max_new_tokens holds up"
                  " all others. A stop that works, a lower max_new_tokens, or vLLM, which fills free places at once",
                  "batching did not help at all, a batch takes just as long as the slowest sample; batch_size 64,"
                  " max_new_tokens 4096",
                  ("answers-never-stop",)),
            Cause("lm_eval asks one row at a time: its batch size is 1 where none is given. --batch_size auto, or"
                  " --model vllm",
                  "gsm8k, ifeval or another benchmark takes eight hours for a small model; Running generate_until"
                  " requests at 20 seconds a row",
                  ("harness-asks-row-by-row",)),
            Cause("a task of lm_eval whose answers end nowhere (until: [], or no stop of the model's) generates"
                  " max_gen_toks tokens for each row",
                  "my own benchmark task takes forever and the outputs go on with made-up questions; task yaml,"
                  " generation_kwargs"),
            Cause("Unsloth's model was not switched to inference: FastLanguageModel.for_inference(model) before"
                  " generate",
                  "Unsloth inference isn't 2x faster, it is slower than plain transformers"),
            Cause("the GGUF file holds float32 or 16-bit weights (--outtype f32) and was never quantized: each token"
                  " reads four to eight times the bytes. llama-quantize IN OUT Q4_K_M",
                  "my own gguf is 10 times slower than the one I downloaded from the hub; 30 GB file for 8B",
                  ("server-generates-slowly",)),
            Cause("llama.cpp runs more threads than one socket has cores (-t): hyperthreads and a second NUMA node slow"
                  " each token. -t of the physical cores of a socket, numactl --cpunodebind=0 --membind=0",
                  "on the big server it is slower than on my laptop; two sockets, hyperthreading, -t 64"),
            Cause("vLLM works on the requests of one adapter at a time: --max-loras is 1 where it is not given, and"
                  " requests of other adapters wait. --max-loras of the adapters that are used together",
                  "when different customers use their own adapter at the same time everything slows to a crawl;"
                  " several lora-modules",
                  ("server-cap-makes-requests-wait",)),
            Cause("vLLM pads each adapter to --max-lora-rank, more than any adapter has: give the largest rank that is"
                  " served",
                  "turning on LoRA in vLLM costs me half of the throughput; max_lora_rank 256 for r=16",
                  ("server-generates-slowly",)),
            Cause("a hand-written StoppingCriteria or LogitsProcessor does Python work for each token: it decodes the"
                  " whole text, or goes over the vocabulary number by number. stop_strings=[...] and a mask made once",
                  "speed starts at 40 tokens per second and falls as the answer grows; restricting the outputs to my"
                  " label set makes it hundreds of times slower",
                  ("python-work-for-each-token",)),
            Cause("each worker of the web server loads a model of its own, and they share one GPU: --workers 1, and"
                  " batches inside (vLLM)",
                  "more workers made the API slower, not faster; uvicorn --workers 4, gunicorn -w 4",
                  ("each-worker-loads-the-model",)),
            Cause("the whole history of a chat is sent with each message and grows without end: keep the last turns,"
                  " or a summary; --enable-prefix-caching",
                  "the bot is snappy at first and gets slower with every message; prompt_tokens 512, 2210, 9804"),
            Cause("clients ask Ollama for the same model with different num_ctx: it loads the model again at each"
                  " change. One num_ctx for all, in the Modelfile",
                  "as soon as both of my scripts are running, every call has a long delay; starting runner at each"
                  " request",
                  ("server-loads-for-each-request",)),
            Cause("the model reasons before each answer (<think>): enable_thinking=False in the chat template, or a "
                  "budget",
                  "a one word answer or label takes thousands of tokens or 40 seconds; Qwen3 thinking; reasoning",
                  ("exact-match-measures-form", "answers-are-too-long")),
            Cause("answers are bound to a schema or grammar, which is compiled for each new schema and masks each"
                  " token: one schema for all requests, a simpler one, or another backend (xgrammar)",
                  "with guided_json, response_format or a grammar the server is several times slower, without it fast"),
            Cause("the card has no fast bfloat16 (T4, V100, RTX 20): load in float16",
                  "slow on T4, V100, Colab or Kaggle in bfloat16; bf16 is emulated", ("bf16-is-emulated",)),
            Cause("another process uses the same GPU, or the card is throttled",
                  "nvidia-smi shows another process, 100% utilization while nothing runs; power cap, thermal slowdown"),
        ),
    ),
    Guide(
        "dpo-without-effect",
        "guides/dpo-that-does-nothing.md",
        "DPO that does nothing",
        ("dpo loss stuck at 0.69", "dpo no effect", "rewards margins are zero", "dpo does not change the model",
         "chosen reward falls", "preference training useless", "dpo accuracy 1.0 at once", "orpo does nothing"),
        "truetune rehearse SETTINGS",
        (
            Cause("both sides of a pair are the same tokens, before or after truncation",
                  "margins are exactly 0; dpo loss 0.693 all the time; one field or one best candidate is written to"
                  " chosen and rejected",
                  ("preference-pairs-identical", "pair-truncated-on-one-side", "pair-sides-equal-or-prompts-differ")),
            NO_ANSWER_TOKEN,
            Cause("the learning rate is too low, or beta does not fit", "loss falls by a hair from ln 2",
                  ("learning-rate-far-from-published", "preference-beta-out-of-range", "dpo-stuck-at-ln2")),
            Cause("the adapter is frozen", "loss at ln 2, gradient norm is 0",
                  ("trained-tensors-without-gradient", "adapter-loaded-frozen", "dpo-stuck-at-ln2")),
            Cause("label smoothing of 0.5: both orders of a pair count the same",
                  "loss never below 0.6931, accuracies near 0.5, gradients arrive, no rate helps",
                  ("dpo-stuck-at-ln2",)),
            Cause("the labels are random or contradict each other: of two answers A and B, A is always taken as the "
                  "better one, and a column that names the winner is not read",
                  "loss stays around 0.69 and accuracy around 0.5 for whole epochs at a sound rate; columns "
                  "response_a, response_b and winner in the rows",
                  ("winner-column-disagrees", "dpo-stuck-at-ln2")),
            Cause("each pair is in the data in both orders",
                  "rewards/accuracies stay at 0.5; pairs judged in both orders", ("pairs-with-opposite-labels",)),
            Cause("what is compared afterwards is the base: the adapter was never loaded",
                  "before and after are word for word the same while the margins grew",
                  ("adapter-is-not-served", "weights-equal-the-base", "two-models-answer-alike")),
            Cause("the pairs are trained in another chat template than the one that is served: a strategy that writes "
                  "its own (Axolotl's type: chatml.intel on a Llama 3), marks written by hand",
                  "accuracy 1.0 and a margin of 5 in the log, but in vLLM or Ollama it is as before, as the base",
                  ("served-template-differs", "template-marks-not-in-vocabulary",
                   "chat-template-of-another-family", "asked-in-another-form")),
            Cause("in a hand-written loop, policy and reference are the same object, so that both move",
                  "a DPO loop of your own: the loss is 0.6931 at every step, rewards and margins are zero",
                  ("reference-moves-with-the-policy", "dpo-stuck-at-ln2")),
            Cause("policy and reference are not the same at the start: log-probabilities of the reference were cached "
                  "with another model (precompute_ref_log_probs), or ref_model is the base of the tuned policy. "
                  "Compute them again with the model that training begins with",
                  "the loss does not begin at ln 2; rewards chosen and rejected are -14 at the very first step",
                  ("rewards-not-zero-at-first", "reference-is-another-model", "policy-differs-from-its-reference")),
            Cause("the sides are exchanged", "perfect curves, and the wrong preference", ("preference-pairs-swapped",)),
            Cause("the run has too few optimizer steps: pairs x epochs / (batch x accumulation x GPUs), or max_steps "
                  "of a test",
                  "over in minutes; a handful of steps; small data set of pairs; loss still at 0.69 at the end",
                  ("setting-out-of-range", "dpo-stuck-at-ln2")),
            Cause("what is exported, merged or served is the adapter from before the DPO",
                  "served or exported model answers word for word as after the sft; curves of the dpo look great",
                  ("trained-adapter-not-used", "adapter-is-not-served", "untrained-model-evaluated")),
            Cause("the client asks the server for the base by its name, and not for the adapter",
                  "vllm --lora-modules; same answers as the base or sft through the api",
                  ("client-asks-for-the-base", "adapter-is-not-served")),
            Cause("the adapter of the DPO was trained on the merged SFT model and is put on the hub's base",
                  "merged dpo model is worse than sft, or has lost the sft", ("script-puts-adapter-on-another-base",)),
            Cause("steps are rounded away: all weights in bfloat16, at rates of 5e-7 to 1e-6",
                  "full dpo without lora, gradients of normal size, margins of 0.001 for hundreds of steps",
                  ("pure-bf16-updates-rounded-away", "bf16-weights-lose-small-updates")),
            Cause("the rejected answers are all alike or trivially separated: one canned refusal, empty, another "
                  "format, one phrase at the beginning",
                  "accuracy 1.0 after a few steps, loss near zero, answers no better",
                  ("dpo-accuracy-at-once", "rejected-side-empty", "pairs-lack-diversity",
                   "one-phrase-tells-the-sides")),
            Cause("the rejected answers belong to other prompts: two lists were filtered each by itself, and zipped",
                  "accuracy 1.0 within 10 steps and a margin that grows, the answers no better than those of the sft "
                  "model",
                  ("rejected-answers-of-other-prompts",)),
            FORM_REWARD,
            Cause("many pairs are ties: both answers have the same score, and chance decides which is chosen",
                  "dpo accuracy does not get above 55 percent, stuck near 0.55; score_chosen equals score_rejected",
                  ("pair-scores-are-equal",)),
            Cause("both answers become less likely: the loss looks at their difference alone. Lower the learning rate, "
                  "raise beta, or add an SFT term on the chosen answers (sft in TRL's loss_type, pref_ftx)",
                  "rewards/chosen and logps/chosen fall along with the rejected ones and are negative, while the "
                  "accuracy is high, and the answers get no better or worse",
                  ("dpo-chosen-falls",)),
            Cause("beta is so large that the policy is held at the reference", "margins grow by beta alone, beta 1 to "
                  "5",
                  ("preference-beta-out-of-range",)),
            Cause("in a hand-written loop, the margin has the wrong sign: rejected minus chosen",
                  "loss falls but the model prefers the rejected answers more and more; the printed margin is negative;"
                  " own dpo loss",
                  ("margin-prefers-the-rejected", "preference-pairs-swapped")),
            Cause("KTO with one to three rows on a GPU: its KL term is estimated from these alone, whatever is"
                  " accumulated",
                  "the kl value in my KTO log jumps around, between 0.0 and 43, and the loss stays at 0.5",
                  ("setting-out-of-range",)),
            Cause("a reward model that learned prompt and answer by the chat template scores bare answers: give it the"
                  " same text as in its training",
                  "RL, GRPO or best of n with my reward model optimises nicely but the answers get worse; rewards"
                  " hardly correlate with quality"),
            Cause("the head of the reward model is not in its adapter: task_type is CAUSAL_LM",
                  "the reward model had 80 percent in training, but after loading it guesses, accuracy 0.50;"
                  " score.weight newly initialized",
                  ("adapter-leaves-head-out", "reward-settings-leave-head-out",
                   "fault-named-in-the-output")),
            Cause("the judge sees the tuned model's answer always in the same place, A or B",
                  "according to my judge DPO versus SFT is 50:50, no matter which settings; win rate, LLM judge",
                  ("judge-sees-one-order",)),
            Cause("too many epochs: the margin grows without end, and evaluation gets worse",
                  "the longer I train DPO, the stranger the answers become; loss 0.004, margins above 20, eval_loss"
                  " rises",
                  ("eval-loss-rises", "dpo-chosen-falls")),
            Cause("in a hand-written loop, the loss is made of something else: an optimizer of the reference's "
                  "parameters, logits without gradient, "
                  "log probabilities of the prompt too", "own dpo loop; margins never move although loss.backward() "
                  "runs",
                  ("reference-moves-with-the-policy", "optimizer-misses-trained-tensors")),
            PATTERN_MISSES_FORM,
            EQUAL_REWARDS,
        ),
    ),
    Guide(
        "reward-does-not-rise",
        "guides/my-reward-does-not-rise.md",
        "My reward does not rise",
        ("grpo reward does not increase", "the reward stays at 0", "reward_std is 0", "frac_reward_zero_std is 1",
         "grpo loss and grad_norm are 0", "advantages are zero", "rloo reward is flat", "critic/rewards/mean is 0"),
        "truetune diagnose LOG",
        (
            PATTERN_MISSES_FORM,
            Cause("no right answer can be paid: the reference can't be read, is compared in another form, or an"
                  " exception in the reward function is caught and counted as 0",
                  "the accuracy reward is 0.0 although printed completions are right; math_verify returns 0; boxed"
                  " answers, gsm8k answer with ####",
                  ("reward-never-pays-its-references", "reward-misses-some-references", "reward-is-never-given",
                   "reward-pattern-needs-a-special-token", "reward-function-scores-nothing")),
            Cause("the column with the right answers never arrives: the argument of the reward function has another"
                  " name and a default",
                  "solution or answer is None in the reward function; it works in a test by hand",
                  ("reward-tells-nothing-apart", "reward-refuses-arguments-of-trl")),
            EQUAL_REWARDS,
            Cause("completions are cut before their answer: max_completion_length (max_response_length) is too short"
                  " for a model that reasons",
                  "completions/clipped_ratio near 1, mean_terminated_length 0, response_length/clip_ratio 1",
                  ("completions-always-cut", "generation-limit-below-answers", "first-completions-cut-or-empty")),
            Cause("the model ends its turns with a stop token that the trainer does not know, so that each completion"
                  " counts as cut",
                  "mask_truncated_completions and everything is masked; answers look complete and clipped_ratio is 1",
                  ("stops-unknown-to-trainer",)),
            Cause("the completions of a group can't differ: a temperature near 0, greedy sampling, a group of one",
                  "the generations for one prompt are word for word the same; temperature 0.1; num_generations 1 or 2",
                  ("grouped-answers-cannot-differ", "group-too-small-for-its-reward")),
            Cause("the problems are far too hard or too easy, so that all of a group fail or all succeed",
                  "frac_reward_zero_std near 1 with a sound reward function; pass rate 0 or 100 percent; the dynamic"
                  " filter drops all groups",
                  ("no-reward-signal", "groups-without-reward-spread")),
            Cause("the reward changes within groups and no gradient arrives: a frozen adapter, or a loss mask without"
                  " tokens",
                  "reward_std above 0, grad_norm 0.0 at every step",
                  ("grad-norm-zero", "loss-weighs-tokens-otherwise")),
            Cause("the sampler has other weights than the trainer, or computes other log-probabilities, so that the"
                  " correction leaves nothing of the loss",
                  "vLLM samples from the old weights; sampling_logp_difference is large, importance ratios near 0",
                  ("sampled-answers-are-not-the-policys", "sampler-differs-from-trainer",
                   "sampler-drifts-from-the-trainer", "importance-correction-drops-answers")),
            Cause("advantages are wrong: the group holds several prompts, the sign is the opposite, or they are"
                  " normalised over another set",
                  "the reward goes down from the first steps; own GRPO or PPO loop; reshape, repeat, view of rewards",
                  ("advantages-are-not-of-their-rewards", "group-holds-several-prompts", "groups-mix-prompts",
                   "policy-loss-with-wrong-sign", "generated-batch-splits-groups")),
            Cause("the reward function reads the answers of other rows, by position or from a list of its own",
                  "the reward is right in a test of one row and near chance in training",
                  ("reward-reads-other-rows", "reward-takes-answers-by-position")),
            Cause("the steps are too small: the learning rate, the clip range or a large beta holds the policy at its"
                  " reference",
                  "kl practically zero, clip ratio near 1, reward with spread but flat for hundreds of steps",
                  ("learning-rate-far-from-published", "most-ratios-are-clipped",
                   "clip-range-does-not-fit-the-ratio")),
        ),
    ),
    Guide(
        "reward-rises-model-is-worse",
        "guides/reward-rises-model-is-worse.md",
        "The reward rises, and the model is worse",
        ("reward hacking", "reward goes up but accuracy falls", "reward rises and eval score drops",
         "the policy exploits the reward", "after grpo it solves less", "completions get longer with reward",
         "reward overoptimization", "format reward 1.0 but wrong answers"),
        "truetune reward MODULE:FUNCTION --data ROWS",
        (
            Cause("the reward function pays a completion that holds the answer among others, a part of it, or nothing"
                  " at all",
                  "answers A or B or C, lists of all numbers or empty tags get reward 1; substring, in, startswith",
                  ("reward-pays-parts-of-the-answer", "reward-pays-every-candidate", "reward-pays-empty-answers",
                   "reward-pays-wrong-answers", "reward-pays-near-misses", "reward-ignores-word-order")),
            Cause("it reads the first answer of a completion, or one in its thoughts, so that a guess is paid",
                  "the model guesses in the first line and goes on; the answer is in think only",
                  ("reward-reads-the-first-answer", "reward-pays-thoughts-alone")),
            Cause("the reward grows with length or repetition",
                  "completions/mean_length grows with the reward; filler text, the same sentence again and again",
                  ("reward-grows-with-repetition", "answers-grow-into-the-limit")),
            FORM_REWARD,
            Cause("the reward pays for what the prompt says already: the policy copies the question",
                  "completions repeat the prompt or the tool's output and are paid",
                  ("reward-pays-the-prompt",)),
            Cause("the reward model or judge is over-optimised: its score goes on rising after people or a test stopped"
                  " to prefer the answers",
                  "long flattering answers, phrases that praise the answer; proxy reward up, gold score down",
                  ("reward-rises-while-evaluation-falls",)),
            Cause("the policy has run away from its reference: beta is 0 or small, or the learning rate too high",
                  "kl runs away or explodes, entropy collapses, texts mix languages or repeat tokens",
                  ("policy-runs-away-from-its-reference", "policy-collapses", "rollout-reference-is-not-the-start",
                   "kl-penalty-counted-twice", "entropy-bonus-outweighs-the-reward")),
            Cause("rows whose reference can't be read pay everything, or the reward is the same whatever is answered",
                  "reward near its maximum from the first steps; parsing the gold answer fails",
                  ("reward-misses-some-references", "reward-is-always-the-same")),
            Cause("padding, the text of tools or no stop token is in the loss",
                  "the model stops ending its answers or writes tool results after RL",
                  ("rollout-padding-in-loss", "sampled-tokens-left-out-of-loss")),
            Cause("the evaluation asks in another way than the training: template, system prompt, temperature or stop"
                  " tokens",
                  "the benchmark falls, answers to training prompts are good",
                  ("prompt-is-not-the-trained-one", "trained-stop-not-served")),
        ),
    ),
    Guide(
        "agent-training",
        "guides/agents-several-turns-and-tool-masks.md",
        "Agents: several turns and tool masks",
        ("tool outputs are in the loss", "multi-turn rl tool mask", "agent stops calling tools",
         "the agent writes the tool result itself", "retokenization mismatch in multi-turn rollouts",
         "observation tokens are trained", "multi-turn reward collapses", "search agent does not search"),
        "truetune run -- python TRAIN.py",
        (
            Cause("the text of tools is in the loss: the mask is everything after the prompt, or every turn of the"
                  " assistant's side",
                  "the agent writes tool results or observations itself; response_mask, env_mask, tool_mask, loss_mask",
                  ("rollout-padding-in-loss", "tool-results-in-the-policy-loss")),
            Cause("the last turn alone is trained, so that tool calls get no gradient",
                  "tool calls get fewer or die out; only the final answer gets better",
                  ("sampled-tokens-left-out-of-loss", "tool-calls-die-out")),
            Cause("turns are decoded to text and encoded again, which gives other ids than were sampled",
                  "retokenization, token mismatch, log-probabilities of sampler and trainer drift with each turn",
                  ("sampled-ids-are-not-trained", "sampler-differs-from-trainer")),
            Cause("the chat template rewrites earlier turns, so that the next prompt does not begin with the last one",
                  "Qwen3 drops earlier thinking; the prefix of the next turn differs; template is not append only",
                  ("chat-template-not-prefix-stable", "thinking-stripped-from-history")),
            Cause("stop tokens inside of a trajectory are taken for its end, or the last one is left out of the loss",
                  "the agent ends before the tool answers, or writes user and observation turns on its own",
                  ("stops-unknown-to-trainer", "completions-run-past-their-turn")),
            Cause("the rows of one trajectory are compared with those of other prompts",
                  "trajectories split into several samples; group baseline over turns",
                  ("group-holds-several-prompts", "advantages-are-not-of-their-rewards")),
            Cause("the divisor of the loss counts tokens of tools that are not in it",
                  "long tool outputs make the step small",
                  ("loss-weighs-tokens-otherwise",)),
            Cause("trajectories are cut at the limit and scored as wrong: tools return too much, or too many turns",
                  "context overflows after a few tool calls; max_completion_length or max_response_length reached",
                  ("completions-always-cut", "cut-completions-against-setting")),
            Cause("the reward reads the whole conversation, so that a tool's output that holds the answer is paid",
                  "searching for the question is enough to be paid; reward without an answer",
                  ("reward-pays-the-prompt", "reward-pays-parts-of-the-answer")),
        ),
    ),
    Guide(
        "good-here-bad-there",
        "guides/good-in-the-notebook-bad-when-served.md",
        "Good in the notebook, bad when served",
        ("works in the notebook but not in vllm", "ollama answers differ", "bad when served", "gguf worse",
         "merged model worse than adapter"),
        "truetune serve-check URL --base MODEL",
        (
            Cause("the server builds another prompt", "right in the notebook", ("server-builds-another-prompt",)),
            Cause("it stops at other tokens", "endless when served", ("trained-stop-not-served",)),
            Cause("the adapter is not served: Ollama's Modelfile has no ADAPTER line, vLLM no --enable-lora or the "
                  "base's name in the request",
                  "ollama or vLLM answers word for word like the base model though the loss fell",
                  ("adapter-is-not-served",)),
            Cause("Ollama serves the file of an earlier run: `ollama create` copies the weights, so that a new GGUF is "
                  "not read until it runs again (ollama rm NAME; ollama create NAME -f Modelfile), and the GGUF has to "
                  "be converted from the folder that was merged last",
                  "I retrained, merged and converted the gguf again, and ollama run gives the same old answers as "
                  "before; exactly the old model; new GGUF has no effect",
                  ("modelfile-serves-the-base", "trained-adapter-not-used")),
            Cause("the adapter's effect is lost in the merge", "merged or exported model is worse than the adapter",
                  ("merge-is-not-base-plus-adapter", "merged-into-4bit-or-low-precision")),
            Cause("Ollama has no TEMPLATE (FROM names a GGUF file alone, and it sends the bare question, without a "
                  "stop), or one that is not that of the training (### Instruction for a chat model)",
                  "Modelfile only has a FROM line; TEMPLATE missing; gguf rambles in Ollama, talks to itself, writes "
                  "random "
                  "text or the next user question, never stops, perfect in the notebook; unsloth save_pretrained_gguf",
                  ("asked-in-another-form", "modelfile-template-differs", "modelfile-lacks-stop")),
            Cause("the TEMPLATE of the Modelfile ends after the question: it opens no turn for the answer, as the "
                  "header did in training",
                  "ollama asks another question instead of answering, writes the user's next message, begins with "
                  "the word assistant; good in the notebook",
                  ("modelfile-template-lacks-answer-header",)),
            Cause("the client sends the bare question to /v1/completions (completions.create), which writes no chat "
                  "template, to a model that was trained on messages",
                  "vllm rambles, writes the next question, Human: and options A B C D; the chat endpoint or the "
                  "notebook is fine",
                  ("asked-in-another-form",)),
            Cause("trained with one chat template and served with another: chatml in training, --chat-template of "
                  "another "
                  "family at the server, template: of the chat config is not that of the training config",
                  "answers well in training's format; ignores instructions when served, prints marks of the format",
                  ("served-template-differs", "server-builds-another-prompt", "prompts-differ-from-training")),
            Cause("what is merged or served is another adapter than the one that was trained: the export names the "
                  "stage "
                  "before, or an older folder",
                  "exported or merged model answers as before the last training, as after the sft",
                  ("trained-adapter-not-used",)),
            Cause("the GGUF is quantized too coarsely, or its converter was older than the model: compare the f16 "
                  "file with "
                  "q4 on one prompt, with the same template",
                  "gguf q4_k_m or q2 is gibberish in llama.cpp while f16 or the notebook is fine"),
            Cause("the converted model computes NaN: a bfloat16 model exported as f16, whose activations or weights "
                  "overflow; convert with --outtype bf16, and compare one prompt without GPU layers (-ngl 0)",
                  "llama.cpp or ollama prints GGGGGGG, @@@@ or one letter without end after converting to gguf"),
        ),
    ),
    Guide(
        "cached-data",
        "guides/cached-data-lost-its-mask.md",
        "Cached data lost its mask",
        ("tokenized dataset", "cache has no labels", "prepared dataset stale", "labels missing in cache"),
        "truetune run -- CMD",
        (
            Cause("rows came tokenized, without labels", "prompts are trained too",
                  ("tokenized-rows-without-labels", "token-rows-without-labels")),
            Cause("labels are made with care, and the collator makes them of the ids again",
                  "DataCollatorForLanguageModeling; masked prompts are still learned, it talks like the users",
                  ("lm-collator-overwrites-labels", "labels-overwritten-by-collator")),
            Cause("a cache of another template or tokenizer",
                  "changes of the data, template or preprocessing have no effect; the same loss to the last digit",
                  ("token-rows-of-another-template", "cache-made-with-other-settings")),
        ),
    ),
)  # fmt: skip
