"""Finds the calls that ask a model for text:

`generate` of transformers, a pipeline, vLLM's `LLM`, and a client of a server.

A call is known by what makes its object (`vllm.LLM`, a client of a server), not by the name of a
variable. Whether it asks for one row is followed back to where its text stands. The trade-off:
where that is not seen, the call counts as one of many rows, and slow loops are missed rather than
accused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.source.evidence.does_tokenizer_call_add_no_pad import surely_adds_no_pad
from truetune.checks.source.evidence.generate_call_inputs import (
    DATA_LOADERS,
    encoding_calls_of_dictionary,
    generate_calls,
    input_ids_argument,
    without_progress_bar_and_enumerate,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.data_flow import Origin
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import variable_of_entry

VLLM_ENGINE = "vllm.LLM"
VLLM_SAMPLING = ("vllm.SamplingParams", "vllm.sampling_params.SamplingParams")
VLLM_METHODS = ("generate", "chat")
TRANSFORMERS_PIPELINE = "transformers.pipeline"
OPENAI_CLIENTS = ("openai.*OpenAI",)
CLIENT_FUNCTIONS = ("ollama.chat", "ollama.generate", "litellm.completion", "litellm.acompletion")
"""Functions of clients that need no object"""
POST_FUNCTIONS = ("requests.post", "httpx.post", "urllib.request.Request")
HTTP_SESSIONS = (
    "requests.Session",
    "httpx.Client",
    "httpx.AsyncClient",
    "aiohttp.ClientSession",
)
GENERATION_PATHS = ("/completions", "/generate", "/api/chat", "/responses", "/infer")
"""Parts of addresses at which servers generate"""
SGLANG, LLAMA_CPP = "sglang.Engine", "llama_cpp.Llama"
"""Engines that take a prompt as it is, beside that of vLLM"""
TGI_CLIENTS = ("huggingface_hub.*InferenceClient",)
CLIENT_METHODS = ("create", "parse")
SINGLE_TEXT_METHODS = ("strip", "lstrip", "rstrip", "replace", "format", "lower", "join", "item")
"""Methods whose result is one text where they are called on one"""
SEVERAL_ROWS_WORDS = ("batch", "chunk", "part", "group", "slice", "texts", "prompts")
"""Parts of names that say that a loop takes several rows at a time"""
SEVERAL_ROWS_CALLS = (
    "DataLoader",
    "batched",
    "array_split",
    "chunk",
    "batch",
    "islice",
    "range",
    "iter",
)
"""Calls that give several rows at a time, or numbers of rows, as far as their names say"""
ONE_ROW_ITERATORS = ("iterrows", "itertuples", "iter_rows")
"""Methods of frames that give one row at a time"""
MAPPING_METHODS = ("apply", "progress_apply", "map", "progress_map")
"""Methods that call a function on each row"""
MAX_STEPS = 8
"""Steps from an argument to the row that it is made of"""


class ModelQuestion(NamedTuple):
    """A call that asks a model for text, and what it asks."""

    call: Call
    text: ast.expr
    """The text, the chat, or what stands for them"""
    is_one: bool
    """It is certainly one row"""


def model_questions(module: Module) -> Iterator[ModelQuestion]:
    """What a file asks models, each call once."""
    for call in generate_calls(module):
        question = _question_of_transformers_generate(module, call)
        if question is not None:
            yield question
    for call in module.all_calls:
        # A call that a client makes and one that posts a body exclude each other: each call counts once.
        text = _prompt_of_pipeline_vllm_or_client(module, call)
        if text is not None:
            yield ModelQuestion(call, text, is_one_text_or_chat(module, text))
            continue
        body = generation_request_body(module, call)
        if body is not None:
            # One request has one chat; a list of prompts would stand under `prompt`.
            yield ModelQuestion(call, body, not _may_post_list(module, body))


def _question_of_transformers_generate(module: Module, call: Call) -> ModelQuestion | None:
    """What a model of transformers is asked; None where it is not seen how the ids are made."""
    spread = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    ids = input_ids_argument(call)
    given = spread if ids is None else [*spread, variable_of_entry(ids)]
    for value in given:
        for encoding in encoding_calls_of_dictionary(module, value):
            text = encoding.argument(0, "text") or encoding.argument(0, "conversation")
            if text is not None:
                return ModelQuestion(call, text, _encodes_one_row(module, encoding, text))
    loaded = next(
        (
            value
            for value in _inputs_of_generate(call)
            if _comes_from_loader_of_single_rows(module, value)
        ),
        None,
    )
    return ModelQuestion(call, loaded, is_one=True) if loaded is not None else None


def _inputs_of_generate(call: Call) -> Iterator[ast.expr]:
    """What `generate` gets as ids, and what is spread into it."""
    ids = input_ids_argument(call)
    if ids is not None:
        yield ids
    yield from (keyword.value for keyword in call.node.keywords if keyword.arg is None)


def _comes_from_loader_of_single_rows(module: Module, value: ast.expr) -> bool:
    """Is it made of a batch of a loader that gives one row at a time, as it does where batch_size
    is left out?
    """
    for name in _names_in_value(module, value):
        for origin in module.flow.origins(name):
            loader = (
                module.flow.producing_call(without_progress_bar_and_enumerate(module, origin.node))
                if origin.element
                else None
            )
            if loader is None or not loader.named(*DATA_LOADERS) or loader.open:
                continue
            size = loader.argument(1, "batch_size")
            if "batch_sampler" not in loader.keywords and (
                size is None or module.flow.value(size) == 1
            ):
                return True
    return False


def _names_in_value(module: Module, value: ast.expr) -> Iterator[ast.Name]:
    """The names in an expression, and in the dictionary whose entries it moves: `{k: v.to(device)
    for ...}`.
    """
    for name in (part for part in ast.walk(value) if isinstance(part, ast.Name)):
        yield name
        for origin in module.flow.origins(name):
            if isinstance(origin.node, ast.DictComp):
                yield from (part for part in ast.walk(origin.node) if isinstance(part, ast.Name))


def _may_post_list(module: Module, body: ast.expr) -> bool:
    """May the body of a request hold a list of prompts?"""
    prompt = module.flow.dict_entries_and_if_complete(body)[0].get("prompt")
    return prompt is not None and not is_one_text_or_chat(module, prompt)


def _encodes_one_row(module: Module, encoding: Call, text: ast.expr) -> bool:
    """Does a call of a tokenizer encode one row? Without padding, several make no tensor."""
    if surely_adds_no_pad(module, encoding):
        return True
    is_tensor = "return_tensors" in encoding.keywords and "padding" not in encoding.keywords
    several = isinstance(text, ast.ListComp) or _is_slice(text)
    return is_tensor and not encoding.open and not several


def _is_slice(node: ast.expr) -> bool:
    """Is it a slice: `rows[a:b]`?"""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)


def _prompt_of_pipeline_vllm_or_client(module: Module, call: Call) -> ast.expr | None:
    """What a pipeline, vLLM or a client is asked; None where the call is of none of these."""
    if call.named(*CLIENT_FUNCTIONS):
        return call.keywords.get("messages") or call.keywords.get("prompt")
    # Also of `self.pipe(...)`, which has the form of a method.
    if _is_result_of_one_call_to(module, call.node.func, TRANSFORMERS_PIPELINE):
        return call.argument(0, "text_inputs")
    if call.method is None or call.receiver is None:
        return None
    if call.method in VLLM_METHODS and _is_result_of_one_call_to(
        module, call.receiver, VLLM_ENGINE
    ):
        return call.argument(0, "prompts") or call.argument(0, "messages")
    if call.method in CLIENT_METHODS and _is_openai_client(module, call.receiver):
        return call.keywords.get("messages") or call.keywords.get("prompt")
    return None


def _is_openai_client(module: Module, receiver: ast.expr) -> bool:
    """Is it a client of an OpenAI server, or a part of one such as `client.chat.completions`?"""
    return _is_result_of_one_call_to(module, _root_client(receiver), *OPENAI_CLIENTS)


def _is_result_of_one_call_to(module: Module, value: ast.expr, *makers: str) -> bool:
    """Is a value the result of one call, to one of these functions or classes?"""
    call = module.flow.producing_call(value)
    return call is not None and call.named(*makers)


def generation_request_body(module: Module, call: Call) -> ast.expr | None:
    """The body that a call posts to a server which generates; None for any other call."""
    made = (
        module.flow.producing_call(call.receiver)
        if call.method == "post" and call.receiver
        else None
    )
    is_session = made is not None and made.named(*HTTP_SESSIONS)
    if not call.named(*POST_FUNCTIONS) and not is_session:
        return None
    address = call.argument(0, "url")
    spelled = ast.unparse(address) if address is not None else ""
    text = module.flow.value(address)
    whole = f"{spelled} {text}" if isinstance(text, str) else spelled
    body = call.keywords.get("json") or call.keywords.get("data")
    return body if any(part in whole for part in GENERATION_PATHS) else None


def completion_prompts_of_clients(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """What is sent to a server as a finished prompt, around which it puts no chat template:
    `/v1/completions`.
    """
    is_raw = _names_completion_addresses_only(module)
    for call in module.all_calls:
        prompt = _prompt_of_client(module, call)
        if prompt is not None:
            yield call, prompt
        body = _posted_body(module, call) if is_raw and _is_http_post(call) else None
        sent = (
            module.flow.dict_entries_and_if_complete(body)[0].get("prompt")
            if body is not None
            else None
        )
        if sent is not None:
            yield call, sent


def _names_completion_addresses_only(module: Module) -> bool:
    """Does a file name addresses of `/completions`, and none of chats?

    The address of a request is often put together elsewhere, so all addresses of the file have to
    be of this kind.
    """
    texts = [node.value for node in module.nodes(ast.Constant) if isinstance(node.value, str)]
    addresses = [text for text in texts if text.rstrip("/").endswith("/completions")]
    return bool(addresses) and not any("/chat/" in text for text in addresses)


def _posted_body(module: Module, call: Call) -> ast.expr | None:
    """The body of a request: `json=body`, or `data=json.dumps(body)`, also in bytes; None where it
    has none.
    """
    body = call.keywords.get("json")
    if body is not None:
        return body
    data_argument = call.keywords.get("data") or call.keywords.get("content")
    made = module.flow.producing_call(data_argument) if data_argument is not None else None
    if made is not None and made.method == "encode" and made.receiver is not None:
        made = module.flow.producing_call(made.receiver)
    return made.argument(0, "obj") if made is not None and made.named("json.dumps") else None


def _prompt_of_client(module: Module, call: Call) -> ast.expr | None:
    """The prompt of `client.completions.create(prompt=...)`; None of any other call."""
    receiver = call.receiver
    if call.method not in CLIENT_METHODS or not isinstance(receiver, ast.Attribute):
        return None
    prompt = call.keywords.get("prompt")
    if prompt is None or receiver.attr != "completions":
        return None
    return prompt if _is_openai_client(module, receiver) else None


def engine_prompts(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """What engines and clients are given as a finished prompt: `sglang.Engine.generate`,
    `Llama(...)(prompt)`, `InferenceClient.text_generation`, and `/generate` of TGI and SGLang."""
    for call in module.all_calls:
        prompt = _engine_prompt(module, call)
        if prompt is not None:
            yield call, prompt


def _engine_prompt(module: Module, call: Call) -> ast.expr | None:
    """The finished prompt of one call; None where it is none of these."""
    if _is_http_post(call):
        return _posted_prompt(module, call)
    if call.receiver is None:
        made = module.flow.producing_call(call.node.func)
        return call.argument(0, "prompt") if made is not None and made.named(LLAMA_CPP) else None
    made = module.flow.producing_call(call.receiver)
    if made is None:
        return None
    if call.method in ("create_completion", "__call__") and made.named(LLAMA_CPP):
        return call.argument(0, "prompt")
    if call.method == "generate" and made.named(SGLANG):
        return call.argument(0, "prompt")
    is_client = call.method == "text_generation" and made.named(*TGI_CLIENTS)
    return call.argument(0, "prompt") if is_client else None


def _posted_prompt(module: Module, call: Call) -> ast.expr | None:
    """The prompt in what is posted to `/generate`: `inputs` (TGI) or `text` (SGLang); None for
    others.

    Ollama's `/api/generate` has a template.
    """
    address = call.argument(0, "url")
    if address is None:
        return None
    value = module.flow.value(address)
    spelled = f"{ast.unparse(address)} {value}"
    if "/generate" not in spelled or "/api/" in spelled:
        return None
    body = call.keywords.get("json")
    entries = module.flow.dict_entries_and_if_complete(body)[0] if body is not None else {}
    return entries.get("inputs") or entries.get("text")


def _is_http_post(call: Call) -> bool:
    """Is it `requests.post`, the `post` of a session, or a request of the standard library?"""
    return call.method == "post" or call.named(*POST_FUNCTIONS)


def _root_client(receiver: ast.expr) -> ast.expr:
    """The client that a chain of attributes begins with: `client` of `client.chat.completions`."""
    while isinstance(receiver, ast.Attribute) and receiver.attr in (
        "chat",
        "completions",
        "beta",
        "responses",
    ):
        receiver = receiver.value
    return receiver


def is_one_text_or_chat(module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Is it certainly one text or one chat, and no list of them?"""
    if depth > MAX_STEPS:
        return False
    if isinstance(node, ast.JoinedStr | ast.Constant):
        return isinstance(node, ast.JoinedStr) or isinstance(node.value, str)
    if isinstance(node, ast.BinOp):
        return any(is_one_text_or_chat(module, side, depth + 1) for side in (node.left, node.right))
    if isinstance(node, ast.List):
        # A list of one text is one row as well; a list with a dictionary is one chat.
        return len(node.elts) == 1 or any(isinstance(element, ast.Dict) for element in node.elts)
    if isinstance(node, ast.Call):
        return _call_returns_one_row(module, module.flow.call(node), depth)
    if isinstance(node, ast.Subscript | ast.Attribute):
        return _is_field_of_one_row(module, node, depth)
    return isinstance(node, ast.Name) and _is_one_row_on_every_way(module, node, depth)


def _is_one_row_on_every_way(module: Module, name: ast.Name, depth: int) -> bool:
    """Is all that a name may stand for one row?"""
    origins = [origin for origin in module.flow.origins(name) if origin.node is not name]
    return bool(origins) and all(_is_name_of_one_row(module, name, one, depth) for one in origins)


def _call_returns_one_row(module: Module, call: Call, depth: int) -> bool:
    """Is what a call returns one text?"""
    if call.named("str", "input"):
        return True
    if call.method in SINGLE_TEXT_METHODS and call.receiver is not None:
        return call.method == "join" or is_one_text_or_chat(module, call.receiver, depth + 1)
    if call.method == "apply_chat_template" and call.args:
        return is_one_text_or_chat(module, call.args[0], depth + 1)
    return _all_returned_values_are_one_row(module, call, depth)


def _all_returned_values_are_one_row(module: Module, call: Call, depth: int) -> bool:
    """Is each value that a function of the files returns one row? False for other functions."""
    origins = [one for one in module.flow.origins(call.node) if one.node is not call.node]
    values = [one.node for one in origins if not one.element]
    return bool(origins) and all(
        isinstance(value, ast.expr) and is_one_text_or_chat(module, value, depth + 1)
        for value in values
    )


def _is_field_of_one_row(module: Module, node: ast.Subscript | ast.Attribute, depth: int) -> bool:
    """Is it a field of one row: `row["question"]`, `row.question`, `row["messages"][:-1]`?"""
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
        return _is_slice(node) and is_one_text_or_chat(module, node.value, depth + 1)
    return is_one_text_or_chat(module, node.value, depth + 1)


def _is_name_of_one_row(module: Module, name: ast.Name, origin: Origin, depth: int) -> bool:
    """Is a name one row by what it stands for: an element of a loop over rows, or a parameter of a
    mapped function?
    """
    if origin.element:
        return _loop_gives_single_rows(name, origin.node)
    if isinstance(origin.node, ast.arg):
        return any(
            is_mapped_per_row(module, function)
            for function in _functions_of_parameter(module, origin.node)
        )
    if isinstance(origin.node, ast.Call):
        read = module.flow.call(origin.node)
        if read.named("json.loads") and read.args:
            return is_one_text_or_chat(module, read.args[0], depth + 1)
    return isinstance(origin.node, ast.expr) and is_one_text_or_chat(module, origin.node, depth + 1)


def _loop_gives_single_rows(name: ast.Name, iterated: ast.AST) -> bool:
    """Does a loop give one row at a time, as far as the names in it say?"""
    calls = (part for part in ast.walk(iterated) if isinstance(part, ast.Call))
    functions = (ast.unparse(part.func).rpartition(".")[2].lower() for part in calls)
    splitters = tuple(splitter.lower() for splitter in SEVERAL_ROWS_CALLS)
    if any(one.startswith(splitters) and one not in ONE_ROW_ITERATORS for one in functions):
        return False
    text = f"{name.id} {ast.unparse(iterated)}".lower()
    return not any(word in text for word in SEVERAL_ROWS_WORDS)


def _functions_of_parameter(module: Module, parameter: ast.arg) -> Iterator[ast.AST]:
    """The function that a parameter belongs to."""
    arguments = module.scopes.parent.get(parameter)
    function = module.scopes.parent.get(arguments) if arguments is not None else None
    if function is not None:
        yield function


def row_mapping_calls_of(module: Module, function: ast.AST) -> Iterator[Call]:
    """The calls that apply a function to each row: `df.apply(f, axis=1)`, `ds.map(f)`, `map(f,
    rows)`.
    """
    for call in (*module.methods(*MAPPING_METHODS), *module.calls("map")):
        function_argument = call.argument(0, "function") or call.keywords.get("func")
        if (
            function_argument is None
            or module.flow.function_that_expression_names(function_argument) is not function
        ):
            continue
        made = module.flow.producing_call(call.receiver) if call.receiver is not None else None
        is_pool = made is not None and any(
            name.endswith(("Executor", "Pool")) for name in made.names
        )
        if module.flow.value(call.keywords.get("batched")) is not True and not is_pool:
            yield call


def is_mapped_per_row(module: Module, function: ast.AST) -> bool:
    """Is a function applied to each row?"""
    return any(row_mapping_calls_of(module, function))


def text_generation_calls(module: Module) -> Iterator[Call]:
    """The calls that ask a model for text, also where it is not seen what they ask."""
    yield from generate_calls(module)
    yield from (one.call for one in model_questions(module) if one.call.method != "generate")


TEXT_GENERATION_CALLS = CodePlaces("calls that ask a model for text", text_generation_calls)
