"""A script prompts the tuned model in another format than it was trained on.

## What it does
Compares how two scripts of one project write their prompts: the one that trains, and the one that loads what it saved
and generates. In a notebook, or a script that does both, it compares the code before the training with the code after
it. Formats are: the chat template; a hand-written text, recognised by the line before the answer (`### Response:`,
`Assistant:`, `[/INST]`); and a bare text, the question without anything around it. Scripts that use both formats, and
models from elsewhere, are not reported.

It also follows chats that `apply_chat_template` renders without `add_generation_prompt` to the model that continues
them. Chats that end in an answer, and model families or custom templates whose answers have no header, are not
reported. A request that tells a server to leave the header out is reported.

A prompt that ends in a space (`Answer: `) is compared with the texts of the training scripts: if the answer follows
there in the same text, the space belongs to the answer's first token.

## Why it is bad
The model learned its answers together with the training prompt. With another prompt it answers much like its base: the
loss fell and the adapter is loaded, but it looks as if nothing had been learned.

## Example
```python
# fit.py: import trl; P = "### Instruction: {}\\n### Response: {}"; trl.SFTTrainer(args=trl.SFTConfig(output_dir="out"))
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoPeftModelForCausalLM.from_pretrained("out")
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
model.generate(**inputs, max_new_tokens=200)
```

## Use instead
```python
# fit.py: import trl; P = "### Instruction: {}\\n### Response: {}"; trl.SFTTrainer(args=trl.SFTConfig(output_dir="out"))
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoPeftModelForCausalLM.from_pretrained("out")
inputs = tokenizer(f"### Instruction: {question}\\n### Response:", return_tensors="pt")
model.generate(**inputs, max_new_tokens=200)
```

## Fix safety
The rule can't know which of the two formats is right. To change the prompt here needs no training. To train with the
chat template needs a new training, but then every engine builds the right prompt.

## References
- tatsu-lab/stanford_alpaca#30, hiyouga/LLaMA-Factory#1433
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.read_training_chats_nearby import find_common_system_prompt, find_nearby_chats
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.own_or_published_model_names import may_be_own_model
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.prompt_forms import (
    PromptForm,
    TrainedBySettings,
    asks_model_and_trains_none,
    chat_template_uses,
    describe_marks,
    handwritten_prompts_by_answer_mark,
    imported_scripts_beside,
    is_model_in_written_folders,
    loaded_model_names,
    model_folders_written,
    module_and_prompt_form_of_training,
    single_prompt_form,
    training_scripts_beside,
    training_settings_beside,
    trains_a_model,
)
from truetune.checks.source.evidence.prompts_ending_in_space import (
    prompts_ending_in_untrained_space,
)
from truetune.checks.source.evidence.prompts_without_answer_header import (
    renders_for_generation_without_header,
    requests_without_header,
)
from truetune.checks.source.evidence.questions_without_template import questions_without_template
from truetune.checks.source.evidence.served_model_folders import (
    folders_answering_requests_of_file,
    model_names_in_requests,
    vllm_servers_around,
)
from truetune.checks.source.evidence.serving_template_differs_from_training import (
    served_by_other_templates,
    templates_before_asking_unlike_training,
)
from truetune.checks.source.evidence.text_generation_calls import (
    engine_prompts,
    text_generation_calls,
)
from truetune.checks.source.evidence.which_place_surely_runs_first import (
    call_routes_to,
    route_runs_after,
    training_places,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SYSTEM_PROMPT_SIGN = re.compile(r"system|developer|\bpersona\b|preamble", re.I)
"""Signs that a script knows of a system prompt"""


ADDRESS_OF_MAKER = re.compile(
    r"https://(?:api|openrouter|generativelanguage|dashscope|bedrock)[\w-]*\.|\.azure\.com|\bAzureOpenAI\b"
)
"""Addresses of those who serve published models"""


class TrainedForm(NamedTuple):
    """The form in which the model that a script asks was trained, and the file that trains it."""

    path: str
    marks: frozenset[str]
    """As those of a PromptForm"""
    case: Case
    is_guess: bool = False
    """Nothing says that it made the model: it is the only training here"""


BARE_TEXT = "a bare text"
"""As a message calls a question with nothing around it"""


class AskedForm(NamedTuple):
    """In which form a file asks the model, and what it was trained on."""

    words: str
    node: ast.AST
    trained: TrainedForm


def _form_of_asked_prompts(module: Module) -> Iterator[PromptForm]:
    """The form of the prompts by which a file asks a model; nothing where it asks none."""
    form = single_prompt_form(module) if asks_model_and_trains_none(module) else None
    if form is not None:
        yield form


def _places_that_ask_models(module: Module) -> Iterator[object]:
    """The places at which a file asks, whatever trains the model; what the rule is about."""
    yield from _form_of_asked_prompts(module)
    yield from served_by_other_templates(module)
    yield from templates_before_asking_unlike_training(module)
    yield from (text for _, text in _calls_asking_with_bare_text(module))
    yield from renders_for_generation_without_header(module)
    yield from requests_without_header(module)
    yield from prompts_ending_in_untrained_space(module)
    question = _user_message_without_system(module)
    if question is not None:
        yield question


def _questions_unlike_training_beside(module: Module) -> Iterator[AskedForm]:
    """The questions of a script that trains nothing, where a training beside it has another form."""
    yield from _prompts_sharing_no_trained_mark(module)
    if (
        asks_model_and_trains_none(module)
        and single_prompt_form(module) is None
        and not _may_have_prompt_of_any_form(module)
    ):
        yield from _first_bare_question_beside_training(module)


def _prompts_sharing_no_trained_mark(module: Module) -> Iterator[AskedForm]:
    """The prompts of a script that share no mark with those of the training beside it."""
    for form in _form_of_asked_prompts(module):
        trained = _form_of_training_behind_asked_model(module)
        # Without marks on either side, both are bare texts.
        if trained is not None and (form.marks or trained.marks):
            if not form.marks & trained.marks:
                yield AskedForm(form.words_for_message, form.node, trained)


def _first_bare_question_beside_training(module: Module) -> Iterator[AskedForm]:
    """The first question without any template, where a training is known beside it."""
    text = next((text for _, text in _calls_asking_with_bare_text(module)), None)
    trained = _form_of_training_behind_asked_model(module) if text is not None else None
    if text is not None and trained is not None:
        yield AskedForm(BARE_TEXT, text, trained)


def _calls_asking_with_bare_text(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The calls that ask with a bare text, also with a column that a training beside makes the user's message of."""
    others = training_scripts_beside(module) if asks_model_and_trains_none(module) else ()
    columns = {name for other in others for name in _user_message_columns(other)}
    yield from questions_without_template(module, frozenset(columns))


def _user_message_columns(module: Module) -> Iterator[str]:
    """The columns that a training puts into a user's message as they are."""
    for node in module.nodes(ast.Dict):
        entries = module.flow.dict_entries_and_if_complete(node)[0]
        role, content = entries.get("role"), entries.get("content")
        if role is None or content is None or module.flow.value(role) != "user":
            continue
        key = module.flow.value(content.slice) if isinstance(content, ast.Subscript) else None
        if isinstance(key, str):
            yield key


def _may_have_prompt_of_any_form(module: Module) -> bool:
    """Is there a prompt of any form, or what may make one elsewhere?"""
    return (
        any(chat_template_uses(module))
        or any(handwritten_prompts_by_answer_mark(module))
        or "chat_template" in module.text
    )


def _questions_unlike_training_before(module: Module) -> Iterator[AskedForm]:
    """The questions that a file asks after it has trained, where the prompts before the training
    have another form.
    """
    places = list(training_places(module))
    if not places:
        return
    start = min(map(_line_number, places))
    trained = _prompt_form_above_line(module, start)
    if trained is None or _uses_chat_template_after(module, start):
        return
    by_hand = _marks_and_handwritten_prompts_after(module, start)
    if not by_hand:
        yield from _first_bare_question_after(module, places, trained)
    # No marks: the training is on the chat template. By hand on both sides, the prompts may be the same.
    elif not trained.marks and _asks_model_after_training(module, places):
        words = describe_marks(frozenset(mark for mark, _ in by_hand))
        yield AskedForm(words, by_hand[0][1], trained)


def _first_bare_question_after(
    module: Module, places: list[ast.AST], trained: TrainedForm
) -> Iterator[AskedForm]:
    """The first question without any template that is asked after the training; nothing where there is none."""
    for call, text in questions_without_template(module):
        if _runs_only_after_training(module, call.node, places):
            yield AskedForm(BARE_TEXT, text, trained)
            return


def _uses_chat_template_after(module: Module, line: int) -> bool:
    """Is the chat template used below a line?"""
    return any(_line_number(node) > line for node in chat_template_uses(module))


def _marks_and_handwritten_prompts_after(module: Module, line: int) -> list[tuple[str, ast.AST]]:
    """The prompts that a file writes by hand below a line, each with its mark."""
    return [
        (mark, node)
        for mark, node in handwritten_prompts_by_answer_mark(module)
        if _line_number(node) > line
    ]


def _asks_model_after_training(module: Module, places: list[ast.AST]) -> bool:
    """Does the file ask a model after its training?"""
    return any(
        _runs_only_after_training(module, call.node, places) for call in generate_calls(module)
    )


def _prompt_form_above_line(module: Module, start: int) -> TrainedForm | None:
    """The form of the prompts above a line, by hand or of the chat template; None where there is none, or both."""
    by_chat = [node for node in chat_template_uses(module) if _line_number(node) < start]
    by_hand = {
        mark: node
        for mark, node in handwritten_prompts_by_answer_mark(module)
        if _line_number(node) < start
    }
    if bool(by_chat) == bool(by_hand):
        return None
    node = by_chat[0] if by_chat else next(iter(by_hand.values()))
    return TrainedForm(module.path, frozenset(by_hand), case_of_node(module, node))


def _line_number(node: ast.AST) -> int:
    """The line of a node; 0 where it has none."""
    return getattr(node, "lineno", 0)


def _runs_only_after_training(module: Module, node: ast.AST, places: list[ast.AST]) -> bool:
    """Does every way to a place lead through what comes after a training?"""
    early = [route for place in places for route in call_routes_to(module, place)]
    ways = call_routes_to(module, node)
    return bool(ways) and all(any(route_runs_after(way, one) for one in early) for way in ways)


class AskedInAnotherForm(SourceRule):
    code = "SRC071"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    severity = "error"
    looks_at = CodePlaces("prompts of scripts that train or ask a model", _places_that_ask_models)

    def findings(self) -> Iterator[Finding]:
        """Findings on questions that are asked in another form than the model was trained on."""
        yield from self._findings_on_servers_by_other_template()
        yield from self._findings_on_tokenizer_given_other_template()
        yield from self._findings_on_missing_system_prompt()
        yield from self._findings_on_trailing_spaces()
        for rendered in renders_for_generation_without_header(self.subject):
            yield self.finding(
                "the prompt ends after the question: without add_generation_prompt it lacks the assistant header,"
                " so the model writes that, or another question, itself",
                "add add_generation_prompt=True to apply_chat_template",
                severity="warning",
                cases=[
                    case_of_node(self.subject, node)
                    for node in _render_call_and_generation_prompt_setting(self.subject, rendered)
                ],
            )
        module = self.subject
        for setting in requests_without_header(module):
            yield self.finding(
                "the request tells the server to leave out the assistant header: the model writes it, or another"
                " question, itself",
                "remove add_generation_prompt from the request: servers add the header by default",
                severity="warning",
                cases=[case_of_node(module, setting)],
            )
        for asked in (
            *_questions_unlike_training_beside(module),
            *_questions_unlike_training_before(module),
        ):
            trained = asked.trained
            yield self.finding(
                f"the model is prompted with {asked.words}, but {_describe_training(trained, module)}",
                _remedy_making_both_prompt_forms_one(trained.marks),
                severity="warning" if trained.is_guess else None,
                cases=[case_of_node(module, asked.node), trained.case],
            )

    def _findings_on_servers_by_other_template(self) -> Iterator[Finding]:
        """Findings on files around a training script that serve its model by another template."""
        for other in served_by_other_templates(self.subject):
            use = other.use
            yield self.finding(
                f"{Path(use.file).name} {use.verb} the model with another template ({other.served}) than"
                f" {Path(self.subject.path).name} trains it on ({other.trained})",
                "use the template of the training there, with its end-of-turn token as a stop (in a Modelfile: TEMPLATE"
                " and PARAMETER stop), or train with the template that is served",
                cases=[
                    Case(use.text, file=use.file, line=use.line),
                    case_of_node(self.subject, other.node),
                ],
            )

    def _findings_on_missing_system_prompt(self) -> Iterator[Finding]:
        """Findings on a script that asks without the system prompt which all trained chats beside
        it begin with.
        """
        module = self.subject
        question = _user_message_without_system(module)
        chats = find_nearby_chats(module.path) if question is not None else None
        system = find_common_system_prompt(chats) if chats is not None else None
        if (
            question is None
            or chats is None
            or system is None
            or _modelfile_adds_system_prompt(module)
        ):
            return
        yield self.finding(
            f"{system.chats} of {system.of} chats of {chats.path.name} begin with a system prompt, but this"
            " script sends none: the model gets another prompt than in training",
            "send the same system prompt, word for word, as the first message of each chat:"
            ' {"role": "system", "content": ...}; or remove it from the rows and train again',
            evidence=[f"the system prompt: {system.text[:160]!r}"],
            severity="warning",
            cases=[case_of_node(module, question)],
        )

    def _findings_on_trailing_spaces(self) -> Iterator[Finding]:
        """Findings on prompts that end in a space which the training has within the answer's first
        token.
        """
        for prompt_ending_in_space in prompts_ending_in_untrained_space(self.subject):
            name = Path(prompt_ending_in_space.training.path).name
            yield self.finding(
                f"the prompt ends in a space after {prompt_ending_in_space.mark!r}, but {name} trained on"
                f" {prompt_ending_in_space.trained!r} as one"
                " text, where the space is part of the answer's first token: the model continues a prompt that it has"
                " never seen (doubled spaces, cut words)",
                f"end the prompt in {prompt_ending_in_space.mark!r} without the space, as the training does",
                severity="warning",
                cases=[
                    case_of_node(self.subject, prompt_ending_in_space.prompt),
                    case_of_node(prompt_ending_in_space.training, prompt_ending_in_space.text),
                ],
            )

    def _findings_on_tokenizer_given_other_template(self) -> Iterator[Finding]:
        """Findings on a file that gives its tokenizer another template than the training did."""
        for other in templates_before_asking_unlike_training(self.subject):
            name = Path(other.training.path).name
            yield self.finding(
                f"the prompt uses the template of another model family ({other.asked}) than {name} trained with"
                f" ({other.trained})",
                f"remove get_chat_template here (the tokenizer was saved with the template of the training), or name"
                f" the trained one, {other.trained}",
                cases=[
                    case_of_node(self.subject, other.node),
                    case_of_node(other.training, other.place),
                ],
            )


def _describe_training(trained: TrainedForm, asking: Module) -> str:
    """The training in words, for a message: its file and the form of its prompts."""
    form, name = describe_marks(trained.marks), Path(trained.path).name
    if trained.is_guess:
        return (
            f"{name}, the only training script here, trains on {form}: if it made this model, the prompt is not the"
            " trained one"
        )
    where = "the training above trained it" if trained.path == asking.path else f"{name} trained it"
    return f"{where} on {form}: it has never seen this prompt format"


def _render_call_and_generation_prompt_setting(
    module: Module, rendered: ast.Call
) -> Iterator[ast.AST]:
    """A call that renders, and the entry of a file of settings by which it leaves the header out."""
    yield rendered
    add_generation_prompt_argument = module.flow.call(rendered).keywords.get(
        "add_generation_prompt"
    )
    if (
        add_generation_prompt_argument is not None
        and module.home(add_generation_prompt_argument) is not module
    ):
        yield add_generation_prompt_argument


def _user_message_without_system(module: Module) -> ast.AST | None:
    """The message of a user that a script writes which asks a model; None where it trains, or names a system prompt."""
    if not asks_model_and_trains_none(module) and not any(text_generation_calls(module)):
        return None
    if trains_a_model(module) or SYSTEM_PROMPT_SIGN.search(module.text):
        return None
    for node in module.nodes(ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        values = {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
        role = values.get("role")
        if isinstance(role, ast.Constant) and role.value == "user" and "content" in values:
            return node
    return None


def _modelfile_adds_system_prompt(module: Module) -> bool:
    """Does a Modelfile beside write a system prompt by itself?"""
    try:
        files = [path for path in Path(module.path).parent.iterdir() if "odelfile" in path.name]
        return any("SYSTEM" in path.read_text(errors="replace") for path in files if path.is_file())
    except OSError:
        return False


def _remedy_making_both_prompt_forms_one(marks: frozenset[str]) -> str:
    """The remedy that makes the two forms one: the cheaper way first, which is that of the
    training.
    """
    if not marks:
        return (
            "build the prompt with tokenizer.apply_chat_template, as in training (vLLM: llm.chat; a server:"
            " client.chat.completions.create with messages), or train on the prompts that are sent here"
        )
    shown = " or ".join(sorted(marks))
    return (
        f"write the prompt exactly as in training, with the same line breaks, so that it ends in {shown}; or train"
        " with the chat template"
    )


def _form_of_training_behind_asked_model(module: Module) -> TrainedForm | None:
    """The form in which the model that a file asks was trained; None where it is not sure what
    trained it.
    """
    names = (
        loaded_model_names(module)
        | folders_answering_requests_of_file(module)
        | _model_names_in_requests(module)
    )
    others = list(training_scripts_beside(module))
    if not names and any(engine_prompts(module)):
        return _form_of_only_training_beside(module, others)
    settings = list(training_settings_beside(module))
    makers = [
        other
        for other in others
        if _is_any_name_in_written_folders(names, model_folders_written(other))
    ]
    files = [one for one in settings if _is_any_name_in_written_folders(names, {one.output})]
    if makers or files:
        return _form_of_only_training(makers, files, module)
    makers = _only_script_that_may_train(names, others)
    files = [] if others else _only_settings_that_may_train(names, settings)
    trained = _form_of_only_training(makers, files, module)
    return None if trained is None else trained._replace(is_guess=True)


def _form_of_only_training(
    makers: list[Module], files: list[TrainedBySettings], asking: Module
) -> TrainedForm | None:
    """The form that the one script or settings file trains on; None for two: which one ran last is
    not known.
    """
    if len(makers) + len(files) != 1:
        return None
    return (
        _prompt_form_trained_by_settings(files[0])
        if files
        else _prompt_form_trained_by_script(makers[0], asking)
    )


def _model_names_in_requests(module: Module) -> frozenset[str]:
    """The names of models in the requests of a file; none where a server around it says what they stand for, or where
    requests go to the maker of a model."""
    if any(vllm_servers_around(module)) or ADDRESS_OF_MAKER.search(module.text):
        return frozenset()
    return frozenset(
        text for node in model_names_in_requests(module) for text in possible_texts(module, node)
    )


def _only_script_that_may_train(names: Iterable[str], others: list[Module]) -> list[Module]:
    """The one training script of the project, where it may have made the model of one of these names; else none."""
    if len(others) != 1:
        return []
    return others if any(_may_be_made_by_training(name, others[0]) for name in names) else []


def _only_settings_that_may_train(
    names: Iterable[str], settings: list[TrainedBySettings]
) -> list[TrainedBySettings]:
    """The one file of settings that trains, where it may have made the model of one of these names;
    else none.
    """
    if len(settings) != 1:
        return []
    base = settings[0].base
    return settings if any(may_be_own_model(name) and name != base for name in names) else []


def _prompt_form_trained_by_settings(settings: TrainedBySettings) -> TrainedForm:
    """The form of prompts that a settings file trains on."""
    return TrainedForm(settings.path, settings.form, Case(settings.key, file=settings.path, line=1))


def _prompt_form_trained_by_script(script: Module, asking: Module) -> TrainedForm | None:
    """The form of prompts that a script trains on; None where it is not known, or the asking file
    has it too.
    """
    trained = module_and_prompt_form_of_training(script)
    if trained is None:
        return None
    home, form = trained
    if home is not script and any(one.path == home.path for one in imported_scripts_beside(asking)):
        return None
    return TrainedForm(home.path, form.marks, case_of_node(home, form.node))


def _is_any_name_in_written_folders(names: Iterable[str], folders: Iterable[str]) -> bool:
    """Is any of the names one of the folders that a training writes, or in one?"""
    return any(is_model_in_written_folders(name, frozenset(folders)) for name in names)


def _form_of_only_training_beside(module: Module, others: list[Module]) -> TrainedForm | None:
    """The one training beside a client that names no model; None where there are several, or its form is not known."""
    files = list(training_settings_beside(module))
    if len(files) + len(others) != 1:
        return None
    return (
        _prompt_form_trained_by_settings(files[0])
        if files
        else _prompt_form_trained_by_script(others[0], module)
    )


def _may_be_made_by_training(name: str, training: Module) -> bool:
    """May it be what the one training of the project made: a local folder, and no model that is published?"""
    return may_be_own_model(name) and name not in loaded_model_names(training)
