"""Protocols of what a script sets up before it trains: adapters, wrappers, configurations, vocabularies, trainers."""

from __future__ import annotations

from truetune.checks.source.evidence.training_protocol.find_acted_objects import (
    ACCELERATORS,
    ADAPTER_WRAPPERS,
    DISTRIBUTED_SAMPLERS,
    DISTRIBUTED_WRAPPERS,
    MODEL_LOADS,
    TRAINERS,
    argument,
    argument_of,
    each_object_when_training_begins,
    each_tokenizer_when_generating,
    event_number_of_length_computation,
    every_object,
    frozen_whole_model,
    is_inside_wrapper,
    is_loaded_model,
    is_made_by,
    is_result_dropped,
    loaded_model,
    model_that_trainer_trains,
    model_with_attribute_set,
    only_call_object_comes_from,
    receiver,
    receiver_made_by,
    result_of_call_event,
    sampler_of_prepared_loader,
    tokenizer_of_trainer,
    tokenizer_that_gets_left_side,
    tokenizer_that_pads,
    tokenizer_that_writes_rows,
    tokenizer_whose_attribute_is_set,
    tokenizer_whose_length_resize_takes,
    tokenizer_whose_pad_id_is_taken,
    tokenizer_with_new_tokens,
    unfrozen_part,
    unfrozen_part_but_embedding,
)
from truetune.checks.source.evidence.training_protocol.protocol_records import (
    START,
    ActedObject,
    Action,
    BrokenOrder,
    Protocol,
    State,
    Transition,
)
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Event, StoreEvent
from truetune.source.symbolic_execution.values_of_run import Attribute, Value

ROPE_SETTINGS = ("rope_scaling", "rope_parameters", "rope_theta", "rotary_emb_base")
DROPOUT_SETTINGS = (
    "attention_dropout",
    "attention_probs_dropout_prob",
    "hidden_dropout",
    "hidden_dropout_prob",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "dropout_rate",
    "resid_dropout",
)
HEADS = ("classifier", "score", "num_labels", "fc", "qa_outputs", "classification_head")
"""Attributes of a classifier that hold its head, or its number of outputs"""
CLASSIFIERS = ("transformers.*ForSequenceClassification*", "transformers.*ForTokenClassification*")
EMBEDDINGS = frozenset(("embed_tokens", "lm_head", "wte", "word_embeddings", "embed_out"))
OWN_EMBEDDINGS = (
    "set_input_embeddings",
    "embed_tokens",
    ".wte",
    "get_input_embeddings().weight",
    "init_weights",
    "nn.init",
    "from_config",
)
"""Code that gives a model rows for a new vocabulary"""
TORCH_DDP = (
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
)
TRANSFORMERS_EMBEDDINGS = "https://huggingface.co/docs/transformers/main_classes/model#transformers.PreTrainedModel.resize_token_embeddings"


def _prepared_model(event: Event) -> ActedObject:
    """The first model that accelerate is given to prepare."""
    if not isinstance(event, CallEvent) or not is_made_by(event.receiver, ACCELERATORS):
        return None
    return next((given for given in event.args if is_loaded_model(given)), None)


def _model_with_batch_norm_replaced_in_wrapper(event: Event) -> ActedObject:
    """The model whose layers of batch norm are replaced inside its wrapper."""
    value = argument_of(event, 0, "module")
    return value if value is not None and is_inside_wrapper(value) else None


def _model_given_inactive_adapter(event: Event) -> ActedObject:
    """The model that gets a further adapter; None for a prompt of adaption, which becomes active at once."""
    if not isinstance(event, CallEvent):
        return None
    settings = only_call_object_comes_from(argument_of(event, 1, "peft_config"))
    is_prompt = settings is not None and settings.named("peft.AdaptionPromptConfig")
    return None if is_prompt else event.receiver


def _model_that_loads_another_adapter(event: Event) -> ActedObject:
    """The model that loads an adapter under a name of its own; None where it replaces the weights of the first one."""
    if not isinstance(event, CallEvent):
        return None
    name = argument_of(event, 1, "adapter_name")
    given = constant_of(name) if name is not None else None
    return event.receiver if isinstance(given, str) and given != "default" else None


def _model_whose_active_adapter_is_merged(event: Event) -> ActedObject:
    """The model of which the active adapters are merged; None where the call names them."""
    if not isinstance(event, CallEvent):
        return None
    position = 2 if event.method == "merge_and_unload" else 0
    named = argument_of(event, position, "adapter_names")
    return event.receiver if named is None else None


def _model_called_through_wrapper(event: Event) -> ActedObject:
    """The model that is called through its wrapper; None where it is called after `.module` took it out."""
    called = event.receiver if isinstance(event, CallEvent) else None
    return called if called is not None and is_inside_wrapper(called) else None


def _loaded_model_with_config_value_set(event: Event) -> ActedObject:
    """The loaded model whose configuration gets another value.

    Code that a checkpoint brings may read its configuration in each forward pass.
    """
    model = model_with_attribute_set("config")(event)
    if not isinstance(model, Value) or not is_loaded_model(model):
        return None
    load = only_call_object_comes_from(model)
    trusted = None if load is None else load.keywords.get("trust_remote_code")
    return model if trusted is None or constant_of(trusted) is False else None


def _loaded_classifier_with_other_label_count(event: Event) -> ActedObject:
    """The loaded classifier whose configuration gets another number of labels."""
    model = _loaded_model_with_config_value_set(event)
    load = only_call_object_comes_from(model) if isinstance(model, Value) else None
    if load is None or not load.named(*CLASSIFIERS):
        return None
    return None if {"num_labels", "config"} & load.keywords.keys() or load.is_open else model


def _model_whose_head_is_set(event: Event) -> ActedObject:
    """The model whose head, or number of labels, is set on the model itself."""
    base = event.base if isinstance(event, StoreEvent) else None
    return None if isinstance(base, Attribute) and base.name == "config" else base


def _model_called_or_given_to_trainer(event: Event) -> ActedObject:
    """The model that a trainer is made with, or that is called."""
    if isinstance(event, CallEvent) and event.method is not None:
        return event.receiver if is_loaded_model(event.receiver) else None
    return argument_of(event, 0, "model")


def _model_with_embedding_adapter(event: Event) -> ActedObject:
    """The model whose adapter trains a copy of its embedding or head (`modules_to_save`)."""
    settings = only_call_object_comes_from(argument_of(event, 1, "peft_config"))
    modules_to_save_argument = (
        None if settings is None else settings.keywords.get("modules_to_save")
    )
    names = None if modules_to_save_argument is None else constant_of(modules_to_save_argument)
    holds = isinstance(names, list | tuple) and not EMBEDDINGS.isdisjoint(map(str, names))
    return argument_of(event, 0, "model") if holds else None


def _each_tokenizer_at_resize_to_other_number(event: Event) -> ActedObject:
    """Each tokenizer, at a resize to another number than the length of one."""
    return every_object(event) if tokenizer_whose_length_resize_takes(event) is None else None


def _tokenizer_of_trainer_of_loaded_model(event: Event) -> ActedObject:
    """The tokenizer of a trainer that trains a loaded model."""
    model = argument_of(event, 0, "model")
    return tokenizer_of_trainer(event) if is_loaded_model(model) else None


def _model_wrapped_with_result_dropped(event: Event) -> ActedObject:
    """The model that is wrapped in a statement which keeps no result."""
    if not is_result_dropped(event):
        return None
    if isinstance(event, CallEvent) and event.method == "prepare":
        return _prepared_model(event)
    return argument_of(event, 0, "module", "model")


def _model_wrapped_with_result_kept(event: Event) -> ActedObject:
    """The model that is wrapped, where the result is kept."""
    if is_result_dropped(event):
        return None
    if isinstance(event, CallEvent) and event.method == "prepare":
        return _prepared_model(event)
    return argument_of(event, 0, "module", "model")


_TRAIN = Action(
    "train",
    "trainer.train(), loss.backward()",
    each_object_when_training_begins,
    methods=("train", "backward"),
    moves_all=True,
)
_ADAPT = Action(
    "put adapter on",
    "get_peft_model(model, config)",
    argument(0, "model"),
    functions=ADAPTER_WRAPPERS,
)

ADAPTER = Protocol(
    name="adapter",
    title="An adapter and what freezes it",
    family="setup",
    about="a model",
    states=(
        State("adapted", "an adapter is on it, and trains"),
        State("frozen late", "all of its weights were frozen after that"),
    ),
    actions=(
        _ADAPT,
        Action(
            "freeze all",
            "model.requires_grad_(False)",
            frozen_whole_model,
            methods=("requires_grad_",),
        ),
        Action(
            "unfreeze",
            "p.requires_grad = True",
            unfrozen_part,
            methods=("requires_grad_",),
            attributes=("requires_grad",),
        ),
        Action("set adapter", "model.set_adapter(...)", receiver, methods=("set_adapter",)),
        _TRAIN,
    ),
    transitions=(
        Transition("put adapter on", "adapted"),
        Transition("freeze all", "frozen late", ("adapted",)),
        Transition("unfreeze", "adapted", ("frozen late",)),
        Transition("set adapter", "adapted", ("frozen late",)),
    ),
    broken_orders=(
        BrokenOrder(
            "frozen-after-adapter",
            "frozen late",
            "train",
            "all weights of the model are frozen after its adapter was added: the adapter is"
            " frozen too, and nothing is trained",
            "freeze the base before get_peft_model (which also does it itself), or skip the"
            " adapter's weights",
            "https://huggingface.co/docs/peft/quicktour",
            shows_past=True,
        ),
    ),
)

WRAPPER = Protocol(
    name="wrapper",
    title="A model inside DistributedDataParallel, FSDP or accelerate's wrapper",
    family="setup",
    about="a model",
    states=(
        State("wrapped", "a wrapper holds its parameters, to average or shard their gradients"),
        State("adapted late", "it got an adapter after that"),
        State("resized late", "it got a new embedding after that"),
        State("unfrozen late", "weights of it were unfrozen after that"),
    ),
    actions=(
        Action(
            "wrap",
            "DistributedDataParallel(model)",
            argument(0, "module"),
            functions=DISTRIBUTED_WRAPPERS,
        ),
        Action("prepare", "accelerator.prepare(model)", _prepared_model, methods=("prepare",)),
        _ADAPT,
        Action(
            "resize",
            "model.resize_token_embeddings(...)",
            receiver,
            methods=("resize_token_embeddings",),
        ),
        Action(
            "unfreeze",
            "p.requires_grad = True",
            unfrozen_part_but_embedding,
            methods=("requires_grad_",),
            attributes=("requires_grad",),
        ),
        Action(
            "convert batch norm",
            "SyncBatchNorm.convert_sync_batchnorm(model)",
            _model_with_batch_norm_replaced_in_wrapper,
            functions=("torch.nn.*SyncBatchNorm.convert_sync_batchnorm",),
        ),
        Action(
            "call wrapper", "wrapped(**batch)", _model_called_through_wrapper, methods=("__call__",)
        ),
    ),
    transitions=(
        Transition("wrap", "wrapped"),
        Transition("prepare", "wrapped"),
        Transition("put adapter on", "adapted late", ("wrapped",)),
        Transition("resize", "resized late", ("wrapped",)),
        Transition("unfreeze", "unfrozen late", ("wrapped",)),
    ),
    broken_orders=(
        BrokenOrder(
            "adapter-after-wrapper",
            "adapted late",
            "call wrapper",
            "the adapter is added after the model was wrapped: with several processes the wrapper"
            " does not know its weights, and their gradients are not averaged",
            "call get_peft_model first, then wrap or prepare what it returns",
            TORCH_DDP,
            shows_past=True,
        ),
        BrokenOrder(
            "resize-after-wrapper",
            "resized late",
            "call wrapper",
            "the embedding is replaced after the model was wrapped: with several processes the"
            " wrapper keeps the old one, and the gradients of the new one are not averaged",
            "call resize_token_embeddings before the model is wrapped",
            TORCH_DDP,
            shows_past=True,
        ),
        BrokenOrder(
            "unfrozen-after-wrapper",
            "unfrozen late",
            "call wrapper",
            "weights are unfrozen after the model was wrapped: with several processes the wrapper"
            " only knows the weights that were trainable then, and the gradients of the others are not"
            " averaged",
            "set requires_grad before the model is wrapped, or wrap it again",
            TORCH_DDP,
            shows_past=True,
        ),
        BrokenOrder(
            "batch-norm-after-wrapper",
            "wrapped",
            "convert batch norm",
            "the batch norm layers are replaced after the model was wrapped: the wrapper keeps the"
            " old ones",
            "call convert_sync_batchnorm before the model is wrapped",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html",
        ),
    ),
)

MODEL_CONFIGURATION = Protocol(
    name="model-configuration",
    title="A model and settings that its modules read when they are built",
    family="setup",
    about="a model that was loaded",
    states=(
        State("built", "its modules have read the configuration"),
        State("positions set late", "the configuration got other position settings after that"),
        State("dropout set late", "the configuration got another dropout after that"),
        State("labels set late", "the configuration got another number of labels after that"),
    ),
    actions=(
        Action("load", "AutoModel.from_pretrained(...)", loaded_model, functions=MODEL_LOADS),
        Action(
            "set positions",
            "model.config.rope_scaling = ...",
            _loaded_model_with_config_value_set,
            attributes=ROPE_SETTINGS,
        ),
        Action(
            "set dropout",
            "model.config.hidden_dropout_prob = ...",
            _loaded_model_with_config_value_set,
            attributes=DROPOUT_SETTINGS,
        ),
        Action(
            "set labels",
            "model.config.num_labels = ...",
            _loaded_classifier_with_other_label_count,
            attributes=("num_labels",),
        ),
        Action("set head", "model.classifier = ...", _model_whose_head_is_set, attributes=HEADS),
        Action(
            "use",
            "Trainer(model=model), model(**batch)",
            _model_called_or_given_to_trainer,
            functions=TRAINERS,
            methods=("__call__", "generate"),
        ),
    ),
    transitions=(
        Transition("load", "built"),
        Transition("set positions", "positions set late", (START, "built")),
        Transition("set dropout", "dropout set late", (START, "built")),
        Transition("set labels", "labels set late", (START, "built")),
        Transition("set head", "built", ("labels set late",)),
    ),
    broken_orders=(
        BrokenOrder(
            "positions-set-after-load",
            "positions set late",
            "use",
            "the position settings are changed after the model was loaded: its rotary embedding"
            " has already computed its frequencies, so the change has no effect now, but it does"
            " when the saved model is loaded",
            "change the config that AutoConfig.from_pretrained(...) returns, and pass it to the"
            " model's from_pretrained as config=",
            "https://github.com/lm-sys/FastChat/pull/2124",
            shows_past=True,
        ),
        BrokenOrder(
            "dropout-set-after-load",
            "dropout set late",
            "use",
            "the dropout is changed after the model was loaded: its layers keep the rate that they were built with",
            "pass it to from_pretrained as an argument, or in config=",
            "https://huggingface.co/docs/transformers/main_classes/configuration",
            severity="warning",
            shows_past=True,
        ),
        BrokenOrder(
            "labels-set-after-load",
            "labels set late",
            "use",
            "the number of labels is changed after the classifier was loaded: its head keeps the number of outputs"
            " that it was built with",
            "pass num_labels to from_pretrained",
            "https://huggingface.co/docs/transformers/main_classes/configuration",
            shows_past=True,
        ),
    ),
    silenced_by=("inv_freq", "rotary_emb =", ".p = ", "_init_rope"),
)

VOCABULARY = Protocol(
    name="vocabulary",
    title="New tokens and the rows of the embedding",
    family="setup",
    about="a tokenizer",
    states=(
        State("added", "it has new tokens, and the embedding has no rows for them"),
        State("resized", "the embedding has as many rows as it has tokens"),
        State("added late", "it got new tokens after the embedding was resized"),
    ),
    actions=(
        Action(
            "add tokens",
            "tokenizer.add_tokens([...])",
            tokenizer_with_new_tokens,
            methods=("add_tokens", "add_special_tokens"),
        ),
        Action(
            "resize",
            "model.resize_token_embeddings(len(tokenizer))",
            tokenizer_whose_length_resize_takes,
            methods=("resize_token_embeddings",),
            find_read=event_number_of_length_computation,
        ),
        Action(
            "resize otherwise",
            "model.resize_token_embeddings(64000)",
            _each_tokenizer_at_resize_to_other_number,
            methods=("resize_token_embeddings",),
            moves_all=True,
        ),
        _TRAIN,
    ),
    transitions=(
        Transition("add tokens", "added late", ("resized", "added late")),
        Transition("add tokens", "added", (START, "added")),
        Transition("resize", "resized"),
        Transition("resize otherwise", START),
    ),
    broken_orders=(
        BrokenOrder(
            "resized-before-tokens",
            "added late",
            "train",
            "the embedding is resized to the tokenizer's length before the tokens are added: it"
            " has no rows for them, which causes an index error or a CUDA assert in the first batch"
            " that contains one",
            "call model.resize_token_embeddings(len(tokenizer)) after the last token is added",
            TRANSFORMERS_EMBEDDINGS,
            shows_past=True,
        ),
        BrokenOrder(
            "length-taken-before-tokens",
            "added",
            "resize",
            "the embedding is resized to a length that was computed before the tokens were added:"
            " it has no rows for them",
            "compute len(tokenizer) after the last token is added",
            TRANSFORMERS_EMBEDDINGS,
            reads_old_value=True,
        ),
    ),
)

WRITTEN_ROWS = Protocol(
    name="written-rows",
    title="A tokenizer and the rows that it has written",
    family="setup",
    about="a tokenizer",
    states=(
        State("encoded", "rows are encoded with it"),
        State("rendered", "rows are rendered by its chat template"),
        State("tokens late", "it got new tokens after that"),
        State("template late", "it got another chat template after that"),
    ),
    actions=(
        Action(
            "encode",
            'rows.map(lambda row: tokenizer(row["text"]))',
            tokenizer_that_writes_rows,
            methods=("__call__", "encode", "encode_plus", "batch_encode_plus"),
        ),
        Action(
            "render",
            "rows.map(lambda row: tokenizer.apply_chat_template(...))",
            tokenizer_that_writes_rows,
            methods=("apply_chat_template",),
        ),
        Action(
            "make trainer",
            "SFTTrainer(processing_class=tokenizer)",
            tokenizer_of_trainer,
            functions=("trl.SFTTrainer", "trl.DPOTrainer", "trl.ORPOTrainer", "trl.KTOTrainer"),
        ),
        Action(
            "add tokens",
            "tokenizer.add_tokens([...])",
            tokenizer_with_new_tokens,
            methods=("add_tokens", "add_special_tokens"),
        ),
        Action(
            "set template",
            "tokenizer.chat_template = ...",
            tokenizer_whose_attribute_is_set,
            attributes=("chat_template",),
        ),
        _TRAIN,
    ),
    transitions=(
        Transition("encode", "encoded", (START, "tokens late")),
        Transition("render", "rendered"),
        Transition("make trainer", "rendered"),
        Transition("add tokens", "tokens late", ("encoded", "rendered")),
        Transition("set template", "template late", ("rendered",)),
    ),
    broken_orders=(
        BrokenOrder(
            "tokens-added-after-rows",
            "tokens late",
            "train",
            "the tokens are added after the rows were tokenized: in the rows each is still split"
            " into several old tokens, and the new ones are never trained",
            "add the tokens before the rows are tokenized",
            "https://huggingface.co/docs/transformers/main_classes/tokenizer#transformers.PreTrainedTokenizerBase.add_tokens",
            shows_past=True,
        ),
        BrokenOrder(
            "template-set-after-rows",
            "template late",
            "train",
            "the chat template is set after the rows were rendered: the model is trained on the"
            " old format, and prompted in the new one, which is saved with the tokenizer",
            "set tokenizer.chat_template before the rows are rendered",
            "https://huggingface.co/docs/transformers/chat_templating",
            shows_past=True,
        ),
    ),
    silenced_by=("streaming", "set_transform", "with_transform", "to_iterable_dataset"),
)

PADDING_TOKEN = Protocol(
    name="padding-token",
    title="The padding token and where its id was taken to",
    family="setup",
    about="a tokenizer",
    states=(
        State("id taken", "its `pad_token_id` is in a configuration"),
        State("changed late", "it got another padding token after that"),
    ),
    actions=(
        Action(
            "take id",
            "model.config.pad_token_id = tokenizer.pad_token_id",
            tokenizer_whose_pad_id_is_taken,
            functions=("transformers.*", "trl.*"),
            attributes=("pad_token_id",),
        ),
        Action(
            "set token",
            "tokenizer.pad_token = ...",
            tokenizer_whose_attribute_is_set,
            attributes=("pad_token",),
        ),
        _TRAIN,
    ),
    transitions=(
        Transition("take id", "id taken"),
        Transition("set token", "changed late", ("id taken",)),
    ),
    broken_orders=(
        BrokenOrder(
            "pad-id-taken-before-pad-token",
            "changed late",
            "train",
            "pad_token_id is copied before the tokenizer gets its padding token: the copy is the old id, or None",
            "set tokenizer.pad_token first, and copy its id after that",
            "https://huggingface.co/docs/transformers/pad_truncation",
            severity="warning",
            shows_past=True,
        ),
    ),
)

PADDING_SIDE = Protocol(
    name="padding-side",
    title="The padding side and the batch that was padded",
    family="setup",
    about="a tokenizer",
    states=(
        State("left", "it pads on the left"),
        State("padded", "it has padded a batch, and not on the left"),
        State("left late", "it got the left as its padding side after that"),
    ),
    actions=(
        Action(
            "pad",
            "tokenizer(texts, padding=True)",
            tokenizer_that_pads,
            methods=("__call__", "batch_encode_plus", "pad"),
        ),
        Action(
            "set left",
            'tokenizer.padding_side = "left"',
            tokenizer_that_gets_left_side,
            attributes=("padding_side",),
        ),
        Action(
            "generate",
            "model.generate(**batch)",
            each_tokenizer_when_generating,
            methods=("generate",),
        ),
    ),
    transitions=(
        Transition("set left", "left", (START,)),
        Transition("pad", "padded", (START,)),
        Transition("pad", "left", ("left late",)),
        Transition("set left", "left late", ("padded",)),
    ),
    broken_orders=(
        BrokenOrder(
            "padding-side-set-after-batch",
            "left late",
            "generate",
            "the padding side is set after the batch was padded: the model generates from the"
            " batch with the old padding",
            "set tokenizer.padding_side before the texts are tokenized",
            "https://huggingface.co/docs/transformers/llm_tutorial",
            severity="warning",
            shows_past=True,
        ),
    ),
)

NEW_VOCABULARY = Protocol(
    name="new-vocabulary",
    title="A new vocabulary and the embedding of the old one",
    family="setup",
    about="a tokenizer",
    states=(State("new", "it was trained again, so that its ids mean other texts"),),
    actions=(
        Action(
            "train tokenizer",
            "tokenizer.train_new_from_iterator(...)",
            result_of_call_event,
            methods=("train_new_from_iterator",),
        ),
        Action(
            "train model",
            "Trainer(model, processing_class=tokenizer)",
            _tokenizer_of_trainer_of_loaded_model,
            functions=TRAINERS,
        ),
    ),
    transitions=(Transition("train tokenizer", "new"),),
    broken_orders=(
        BrokenOrder(
            "new-vocabulary-under-old-embedding",
            "new",
            "train model",
            "the tokenizer has a new vocabulary, but the model was loaded with the embedding of"
            " the old one: each id gets the embedding of an unrelated token, and what the model"
            " knew is lost",
            "add the new tokens to the old tokenizer and resize the embedding, or train a new"
            " model from_config",
            "https://huggingface.co/docs/transformers/main_classes/tokenizer",
        ),
    ),
    silenced_by=OWN_EMBEDDINGS,
)

TRAINER_MODEL = Protocol(
    name="trainer-model",
    title="A trainer and the adapter of its model",
    family="setup",
    about="a model",
    states=(
        State("given", "a trainer is made with it"),
        State("adapted late", "it got an adapter after that"),
    ),
    actions=(
        Action("make trainer", "Trainer(model=model)", argument(0, "model"), functions=TRAINERS),
        _ADAPT,
        Action("train", "trainer.train()", model_that_trainer_trains, methods=("train",)),
    ),
    transitions=(
        Transition("make trainer", "given"),
        Transition("put adapter on", "adapted late", ("given",)),
    ),
    broken_orders=(
        BrokenOrder(
            "adapter-after-trainer",
            "adapted late",
            "train",
            "the adapter is added after the trainer was created: the trainer keeps the model"
            " without its wrapper, and saves whole weights under names that no loader expects",
            "call get_peft_model first, or pass peft_config to the trainer",
            "https://huggingface.co/docs/peft/quicktour",
            shows_past=True,
        ),
    ),
)

ADAPTER_SWITCH = Protocol(
    name="adapter-switch",
    title="An adapter that is merged or switched off",
    family="setup",
    about="a model with an adapter",
    states=(
        State("merged", "the adapter is added to the weights, and computes nothing itself"),
        State("off", "the adapter is switched off"),
    ),
    actions=(
        Action("merge", "model.merge_adapter()", receiver, methods=("merge_adapter",)),
        Action("unmerge", "model.unmerge_adapter()", receiver, methods=("unmerge_adapter",)),
        Action(
            "switch off",
            "model.disable_adapter_layers()",
            receiver,
            methods=("disable_adapter_layers", "disable_adapters"),
        ),
        Action(
            "switch on",
            "model.enable_adapter_layers()",
            receiver,
            methods=("enable_adapter_layers", "enable_adapters", "set_adapter"),
        ),
        _TRAIN,
    ),
    transitions=(
        Transition("merge", "merged"),
        Transition("unmerge", START),
        Transition("switch off", "off"),
        Transition("switch on", START),
    ),
    broken_orders=(
        BrokenOrder(
            "trained-while-merged",
            "merged",
            "train",
            "the adapter is merged while the model trains: it is not part of the forward pass, and"
            " gets no gradient",
            "call model.unmerge_adapter() before training continues",
            "https://huggingface.co/docs/peft/accelerate/deepspeed",
        ),
        BrokenOrder(
            "trained-while-switched-off",
            "off",
            "train",
            "the adapter is switched off while the model trains: it is not part of the forward"
            " pass, and its weights are frozen",
            "call model.enable_adapter_layers() before training continues",
            "https://huggingface.co/docs/peft/package_reference/peft_model",
        ),
    ),
)

INFERENCE_MODE = Protocol(
    name="inference-mode",
    title="Unsloth's mode for inference",
    family="setup",
    about="a model that Unsloth loaded",
    states=(State("for inference", "Unsloth has switched it to its mode for inference"),),
    actions=(
        Action(
            "switch to inference",
            "FastLanguageModel.for_inference(model)",
            argument(0, "model"),
            functions=("unsloth.Fast*Model.for_inference",),
        ),
        Action(
            "switch to training",
            "FastLanguageModel.for_training(model)",
            argument(0, "model"),
            functions=("unsloth.Fast*Model.for_training",),
        ),
        Action("train", "loss.backward()", every_object, methods=("backward",)),
    ),
    transitions=(
        Transition("switch to inference", "for inference"),
        Transition("switch to training", START),
    ),
    broken_orders=(
        BrokenOrder(
            "trained-in-inference-mode",
            "for inference",
            "train",
            "the model is in Unsloth's inference mode while a loop of the script trains it:"
            " gradient checkpointing and dropout are off",
            "call FastLanguageModel.for_training(model) before the loop; a trainer does so itself",
            "https://github.com/unslothai/unsloth/issues/392",
            severity="warning",
        ),
    ),
)

SECOND_ADAPTER = Protocol(
    name="second-adapter",
    title="A second adapter and which one trains",
    family="setup",
    about="a model with an adapter",
    states=(
        State("adapted", "its first adapter is active"),
        State("second added", "it has a second adapter, which is not active"),
    ),
    actions=(
        _ADAPT,
        Action(
            "add adapter",
            'model.add_adapter("second", config)',
            _model_given_inactive_adapter,
            methods=("add_adapter",),
        ),
        Action("set adapter", 'model.set_adapter("second")', receiver, methods=("set_adapter",)),
        _TRAIN,
    ),
    transitions=(
        Transition("put adapter on", "adapted"),
        Transition("add adapter", "second added", ("adapted",)),
        Transition("set adapter", START),
    ),
    broken_orders=(
        BrokenOrder(
            "second-adapter-not-active",
            "second added",
            "train",
            "the second adapter is added but never activated: the first one is trained",
            "call model.set_adapter with the second adapter's name before the training",
            "https://huggingface.co/docs/peft/package_reference/peft_model#peft.PeftModel.add_adapter",
        ),
    ),
)

MERGED_ADAPTER = Protocol(
    name="merged-adapter",
    title="Several adapters and which one is merged",
    family="setup",
    about="a model with an adapter",
    states=(
        State("adapted", "its first adapter is active"),
        State("second loaded", "it has loaded a second adapter, which is not active"),
        State("combined", "its adapters are combined into a new one, which is not active"),
    ),
    actions=(
        _ADAPT,
        Action(
            "load adapter",
            'model.load_adapter("second", adapter_name="second")',
            _model_that_loads_another_adapter,
            methods=("load_adapter",),
        ),
        Action(
            "combine",
            'model.add_weighted_adapter(["first", "second"], [0.5, 0.5], "both")',
            receiver,
            methods=("add_weighted_adapter",),
        ),
        Action(
            "set adapter",
            'model.set_adapter("both")',
            receiver,
            methods=("set_adapter", "set_adapters", "delete_adapter", "activate_adapter"),
        ),
        Action(
            "merge",
            "model.merge_and_unload()",
            _model_whose_active_adapter_is_merged,
            methods=("merge_and_unload", "merge_adapter"),
        ),
        Action("generate", "model.generate(**batch)", receiver, methods=("generate",)),
    ),
    transitions=(
        Transition("put adapter on", "adapted"),
        Transition("load adapter", "second loaded", ("adapted",)),
        Transition("combine", "combined", ("adapted", "second loaded")),
        Transition("set adapter", START),
    ),
    broken_orders=(
        BrokenOrder(
            "second-adapter-not-merged",
            "second loaded",
            "merge",
            "the second adapter is loaded but never activated: only the first one is merged",
            "call model.set_adapter with the name of the intended adapter, or"
            " merge_and_unload(adapter_names=[...])",
            "https://huggingface.co/docs/peft/package_reference/peft_model#peft.PeftModel.load_adapter",
        ),
        BrokenOrder(
            "combined-adapter-not-merged",
            "combined",
            "merge",
            "add_weighted_adapter creates a new adapter but does not activate it: only the first"
            " one is merged",
            "call model.set_adapter with the name of the new one before the merge",
            "https://github.com/huggingface/peft/pull/1444",
        ),
        BrokenOrder(
            "combined-adapter-not-asked",
            "combined",
            "generate",
            "add_weighted_adapter creates a new adapter but does not activate it: the first one"
            " generates the answers",
            "call model.set_adapter with the name of the new one before generate",
            "https://github.com/huggingface/peft/pull/1444",
        ),
    ),
    silenced_by=("active_adapter =", "base_model.set_adapter"),
)

EMBEDDING_ADAPTER = Protocol(
    name="embedding-adapter",
    title="An adapter that trains a copy of the embedding",
    family="setup",
    about="a model",
    states=(State("copied", "`modules_to_save` holds a copy of its embedding or head"),),
    actions=(
        Action(
            "put adapter on",
            'get_peft_model(model, LoraConfig(modules_to_save=["embed_tokens"]))',
            _model_with_embedding_adapter,
            functions=("peft.get_peft_model",),
        ),
        Action(
            "resize",
            "model.resize_token_embeddings(...)",
            receiver,
            methods=("resize_token_embeddings",),
        ),
    ),
    transitions=(Transition("put adapter on", "copied"),),
    broken_orders=(
        BrokenOrder(
            "resize-after-embedding-adapter",
            "copied",
            "resize",
            "the embedding is resized after modules_to_save has wrapped it: this raises `Old"
            " embeddings are of type ModulesToSaveWrapper`",
            "call resize_token_embeddings before get_peft_model",
            "https://huggingface.co/docs/peft/developer_guides/troubleshooting",
        ),
    ),
)

SHARDED_SAMPLER = Protocol(
    name="sharded-sampler",
    title="A DistributedSampler under accelerate",
    family="setup",
    about="a `DistributedSampler`",
    states=(State("made", "it gives each process its share of the rows"),),
    actions=(
        Action(
            "make", "DistributedSampler(rows)", result_of_call_event, functions=DISTRIBUTED_SAMPLERS
        ),
        Action(
            "prepare",
            "accelerator.prepare(DataLoader(rows, sampler=sampler))",
            sampler_of_prepared_loader,
            methods=("prepare", "prepare_data_loader"),
        ),
    ),
    transitions=(Transition("make", "made"),),
    broken_orders=(
        BrokenOrder(
            "sampler-sharded-twice",
            "made",
            "prepare",
            "the sampler gives each process its share of the rows, and accelerate splits that"
            " share again: with N processes, each trains on 1/N of its 1/N",
            "create the DataLoader without the sampler: accelerator.prepare splits the rows",
            "https://github.com/huggingface/accelerate/issues/3520",
        ),
    ),
    silenced_by=("already_sharded",),
)

DROPPED_WRAPPER = Protocol(
    name="dropped-wrapper",
    title="A wrapper that is made and not kept",
    family="setup",
    about="a model",
    states=(
        State("dropped", "a wrapper was made around it, and nothing holds the wrapper"),
        State(
            "compiled and dropped", "a compiled model was made of it, and nothing holds that one"
        ),
    ),
    actions=(
        Action(
            "wrap and drop",
            "accelerator.prepare(model)",
            _model_wrapped_with_result_dropped,
            functions=DISTRIBUTED_WRAPPERS,
            methods=("prepare",),
        ),
        Action(
            "wrap",
            "model = accelerator.prepare(model)",
            _model_wrapped_with_result_kept,
            functions=DISTRIBUTED_WRAPPERS,
            methods=("prepare",),
        ),
        Action(
            "compile and drop",
            "torch.compile(model)",
            _model_wrapped_with_result_dropped,
            functions=("torch.compile",),
        ),
        Action(
            "compile",
            "model = torch.compile(model)",
            _model_wrapped_with_result_kept,
            functions=("torch.compile",),
        ),
        Action("call", "model(**batch)", receiver, methods=("__call__",)),
    ),
    transitions=(
        Transition("wrap and drop", "dropped"),
        Transition("wrap", START),
        Transition("compile and drop", "compiled and dropped", (START,)),
        Transition("compile", START),
    ),
    broken_orders=(
        BrokenOrder(
            "wrapper-dropped",
            "dropped",
            "call",
            "the wrapped model is discarded and the unwrapped one is called: with several"
            " processes the gradients are not averaged, and the copies drift apart",
            "assign what the call returns to the model's variable",
            "https://huggingface.co/docs/accelerate/basic_tutorials/migration",
        ),
        BrokenOrder(
            "compiled-model-dropped",
            "compiled and dropped",
            "call",
            "the compiled model is discarded and the plain one is called: nothing is compiled",
            "assign what torch.compile returns to the model's variable, or call model.compile()",
            "https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
            severity="warning",
        ),
    ),
)

RESPONSE_MASK = Protocol(
    name="response-mask",
    title="A trainer and what is set after its training",
    family="setup",
    about="a trainer",
    states=(
        State("trained", "its training has run"),
        State("masked late", "it got its mask of the prompts after that"),
        State("callback late", "it got a callback after that"),
    ),
    actions=(
        Action("train", "trainer.train()", receiver_made_by(TRAINERS), methods=("train",)),
        Action(
            "mask prompts",
            "train_on_responses_only(trainer)",
            argument(0, "trainer"),
            functions=("unsloth*train_on_responses_only",),
        ),
        Action(
            "add callback",
            "trainer.add_callback(...)",
            receiver_made_by(TRAINERS),
            methods=("add_callback",),
        ),
        Action(
            "evaluate",
            "trainer.evaluate()",
            receiver_made_by(TRAINERS),
            methods=("evaluate", "predict"),
        ),
        Action("end", "the end of the script", every_object, is_end=True),
    ),
    transitions=(
        Transition("train", "trained"),
        Transition("mask prompts", "masked late", ("trained",)),
        Transition("add callback", "callback late", ("trained",)),
        Transition("evaluate", START, ("callback late",)),
    ),
    broken_orders=(
        BrokenOrder(
            "prompts-masked-after-training",
            "masked late",
            "end",
            "the prompts are masked after the training: the loss covered the prompts too",
            "call train_on_responses_only(trainer) before trainer.train()",
            "https://unsloth.ai/docs/get-started/fine-tuning-llms-guide/lora-hyperparameters-guide",
            shows_past=True,
        ),
        BrokenOrder(
            "callback-added-after-training",
            "callback late",
            "end",
            "the callback is added after the training: none of its methods runs",
            "call trainer.add_callback before trainer.train()",
            "https://huggingface.co/docs/transformers/main_classes/callback",
            severity="warning",
            shows_past=True,
        ),
    ),
)

PROTOCOLS_OF_SETUPS = (
    ADAPTER,
    WRAPPER,
    MODEL_CONFIGURATION,
    VOCABULARY,
    WRITTEN_ROWS,
    PADDING_TOKEN,
    PADDING_SIDE,
    NEW_VOCABULARY,
    TRAINER_MODEL,
    ADAPTER_SWITCH,
    INFERENCE_MODE,
    SECOND_ADAPTER,
    MERGED_ADAPTER,
    EMBEDDING_ADAPTER,
    SHARDED_SAMPLER,
    DROPPED_WRAPPER,
    RESPONSE_MASK,
)
