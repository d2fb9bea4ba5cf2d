"""A training script swaps the roles of messages: the question is the assistant's.

## What it does
Inspects scripts that train and scripts that write chats to a file. It fires on a role mapping that gives the
assistant's role to the person who asks and the user's to the one who answers (`{"human": "assistant", "gpt": "user"}`,
`"assistant" if turn["from"] == "human" else "user"`, the same as an `if` with `else`, `inbound` and `outbound`
messages). It also fires on a list of messages in which `question` is the assistant's content and `answer`, after it,
the user's. The markers that Unsloth's `train_on_responses_only` and TRL's completion collator use to find the answers
count too, if they name the user's turn (`response_part="<|im_start|>user\\n"`).

In a script that prompts a model it checks what is added to the chat: the model's own answer must not come back as the
user's. Scripts that name the assistant anywhere are not reported, since two models may talk there.

## Why it is bad
The model learns to ask and to complain, and is never trained on an answer. The loss falls as it would for answers.

## Example
```python
from trl import SFTTrainer

ROLES = {"human": "assistant", "gpt": "user"}
rows = rows.map(lambda row: {"messages": [{"role": ROLES[t["from"]], "content": t["value"]} for t in row["turns"]]})
SFTTrainer("model", train_dataset=rows).train()
```

## Use instead
```python
from trl import SFTTrainer

ROLES = {"human": "user", "gpt": "assistant"}
rows = rows.map(lambda row: {"messages": [{"role": ROLES[t["from"]], "content": t["value"]} for t in row["turns"]]})
SFTTrainer("model", train_dataset=rows).train()
```

## Fix safety
Safe, unless you want a model that plays the user: then ignore the rule. After the fix, the model must be trained again.

## References
- huggingface/trl documentation, "Dataset formats" (conversational)
- hiyouga/LLaMA-Factory#1885
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.answers_given_back_as_user_turns import (
    answers_given_back_as_users,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.prompt_forms import trains_a_model
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.response_marker_masking import (
    TRL_COMPLETION_COLLATOR,
    UNSLOTH_RESPONSE_MASKING,
)

# Names that public data sets and chat templates use; a name of both sides would prove nothing.
ASKERS = frozenset(
    (
        "human", "user", "customer", "client", "prompter", "caller", "visitor", "guest", "patient", "buyer",
        "shopper", "student", "requester", "inbound", "incoming",
    )
)  # fmt: skip
ANSWERERS = frozenset(
    (
        "gpt", "assistant", "bot", "model", "agent", "ai", "chatgpt", "operator", "doctor", "support",
        "representative", "advisor", "therapist", "tutor", "teacher", "staff", "outbound", "outgoing",
    )
)  # fmt: skip
THE_USER = frozenset(("user", "human"))
THE_ASSISTANT = frozenset(("assistant", "model", "gpt"))
MAX_STEPS = 6
"""Names, calls and slices between a marker and its text. Chosen, not measured: `encode(TEXT)[2:]` by a name is four"""
ASKED = re.compile(r"(?:^|[^a-z])(?:question|query|instruction|prompt|request)s?(?:$|[^a-z])", re.I)
ANSWERED = re.compile(
    r"(?:^|[^a-z])(?:answer|response|reply|completion|output)s?(?:$|[^a-z])", re.I
)

# Whose turn a marker opens: `<|im_start|>user`, `### Instruction:`, `[/INST]`.
USERS_MARK = re.compile(r"(?<![a-z])(?:user|human|customer)(?![a-z])|\[INST\]", re.I)
QUESTIONS_MARK = re.compile(r"(?<![a-z])(?:instruction|question|input|prompt)(?![a-z])", re.I)
"""Texts that open a question; a model may be trained to write questions, so that one alone proves nothing"""
ANSWERS_MARK = re.compile(
    r"(?<![a-z])(?:assistant|model|response|answer|gpt|bot|output|ai)(?![a-z])|\[/INST\]", re.I
)


def _role_assignments(module: Module) -> Iterator[ast.AST]:
    """Where a training script says which role is whose."""
    if trains_a_model(module) or _writes_chats_without_generating(module):
        # Nowhere else: who simulates a user exchanges the roles on purpose.
        yield from (node for node in module.nodes(ast.Dict) if _roles_of_mapping(node))
        yield from (
            node for node in module.nodes(ast.IfExp) if _roles_of_conditional_expression(node)
        )
        yield from (node for node in module.nodes(ast.If) if _roles_of_branches(node))
        yield from (node for node in module.nodes(ast.List) if len(_messages_of_list(node)) > 1)
        yield from (call.node for call in _calls_that_label_by_marker(module))
    yield from answers_given_back_as_users(module)


def _writes_chats_without_generating(module: Module) -> bool:
    """Does a script write chats to a file, and ask no model for a turn of them?"""
    writes = any(True for _ in module.calls("json.dump", "json.dumps")) or any(
        True for method in ("to_json", "write_all") for _ in module.methods(method)
    )
    asks = any(True for method in ("create", "generate", "chat") for _ in module.methods(method))
    texts = {node.value for node in module.nodes(ast.Constant) if isinstance(node.value, str)}
    return writes and not asks and bool(texts & {"messages", "conversations"})


class RolesExchangedInCode(SourceRule):
    code = "SRC106"
    fault = Fault.ROLES_SWAPPED
    severity = "error"
    looks_at = CodePlaces("roles of messages that a training script makes", _role_assignments)

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_on_markers()
        for added in answers_given_back_as_users(self.subject):
            yield self.finding(
                "the model's answer is added to the chat as a user turn: from the second question on, the model sees a"
                " chat without its own answers",
                'add the answer as {"role": "assistant", "content": ...}',
                cases=[case_of_node(self.subject, added)],
            )
        for node in _role_assignments(self.subject):
            exchange = _describe_exchange(node)
            if exchange is not None:
                yield self.finding(
                    f"the roles are swapped: {exchange}; the model learns to ask, not to answer",
                    'set "role": "user" for the questions, and "role": "assistant" for the answers',
                    cases=[case_of_node(self.subject, node)],
                )

    def _findings_on_markers(self) -> Iterator[Finding]:
        """Findings on markers of answers that open the turns of the user."""
        module = self.subject
        for call in _calls_that_label_by_marker(module):
            argument = _response_marker(call)
            texts = _texts_of_marker(module, argument) if argument is not None else []
            prompts = _texts_of_marker(module, other) if (other := _prompt_marker(call)) else []
            if (
                argument is None
                or not texts
                or not _do_answer_markers_open_user_turns(texts, prompts)
            ):
                continue
            yield self.finding(
                f"the marker of the answers, {texts[0]!r}, starts the user's turns: the loss is on what users say, and"
                " the model learns to ask",
                "set instruction_part (TRL: instruction_template) to the header of the user's turns, and response_part"
                " (TRL: response_template) to that of the assistant's; then decode the labels of one row that are not"
                " -100",
                cases=[case_of_node(module, argument)],
            )


def _calls_that_label_by_marker(module: Module) -> Iterator[Call]:
    """The calls of libraries that label answers by a marker."""
    yield from module.calls(*UNSLOTH_RESPONSE_MASKING, TRL_COMPLETION_COLLATOR)


def _response_marker(call: Call) -> ast.expr | None:
    """The marker of answers that a call is given."""
    if call.named(TRL_COMPLETION_COLLATOR):
        return call.argument(0, "response_template")
    return call.argument(2, "response_part")


def _prompt_marker(call: Call) -> ast.expr | None:
    """The marker of prompts that a call is given."""
    if call.named(TRL_COMPLETION_COLLATOR):
        return call.keywords.get("instruction_template")
    return call.argument(1, "instruction_part")


def _texts_of_marker(module: Module, argument: ast.expr) -> list[str]:
    """The texts that a marker may be, also where it is given as ids: `tokenizer.encode(TEXT)[2:]`."""
    for _ in range(MAX_STEPS):
        texts = possible_texts(module, argument)
        if texts:
            return texts
        if isinstance(argument, ast.Subscript):
            argument = argument.value
        elif isinstance(argument, ast.Call) and argument.args:
            argument = argument.args[0]
        else:
            origins = [one.node for one in module.flow.origins(argument)]
            if len(origins) != 1 or origins[0] is argument or not isinstance(origins[0], ast.expr):
                return []
            argument = origins[0]
    return []


def _do_answer_markers_open_user_turns(answers: list[str], prompts: list[str]) -> bool:
    """Do the markers of answers open the turns of who asks?"""
    if any(ANSWERS_MARK.search(one) for one in answers):
        return False
    if all(USERS_MARK.search(one) for one in answers):
        return True
    is_question = all(QUESTIONS_MARK.search(one) for one in answers)
    return is_question and any(ANSWERS_MARK.search(one) for one in prompts)


def _describe_exchange(node: ast.AST) -> str | None:
    """What a place says the wrong way round; None where it does not."""
    if isinstance(node, ast.List):
        return _exchange_in_messages(node)
    return _exchange_in_roles(
        _roles_of_mapping(node)
        or _roles_of_conditional_expression(node)
        or _roles_of_branches(node)
    )


def _exchange_in_roles(roles: Mapping[str, str]) -> str | None:
    """What a table says the wrong way round of the names that ask and answer (name in the rows -> role); None where it
    does not."""
    asker = next((name for name in roles if name in ASKERS), None)
    answerer = next((name for name in roles if name in ANSWERERS), None)
    wrong = [
        f"{name} becomes the {roles[name]}"
        for name, whose in ((asker, THE_ASSISTANT), (answerer, THE_USER))
        if name is not None and roles[name] in whose
    ]
    named = roles.keys() & (ASKERS | ANSWERERS)
    # Both or, where one alone is named, that one: half an exchange gives two turns to one role, which is another fault.
    return " and ".join(wrong) if wrong and len(wrong) == min(2, len(named)) else None


def _exchange_in_messages(node: ast.List) -> str | None:
    """What a list of messages says the wrong way round: the answer is the user's, the question the assistant's."""
    turns = [turn for turn in _messages_of_list(node) if turn[0] != "system"]
    if [role for role, _ in turns] != ["assistant", "user"]:
        return None
    question, answer = (ast.unparse(content) for _, content in turns)
    if _words_match_only_pattern(question, ASKED, ANSWERED) and _words_match_only_pattern(
        answer, ANSWERED, ASKED
    ):
        return f"{question} has the role assistant, and {answer} the role user"
    return None


def _roles_of_mapping(node: ast.AST) -> dict[str, str]:
    """Name in the rows -> role, of a mapping that names one who asks and one who answers."""
    if not isinstance(node, ast.Dict):
        return {}
    roles = _text_entries_of_dict(node)
    has_both = not ASKERS.isdisjoint(roles) and not ANSWERERS.isdisjoint(roles)
    # A mapping of each role to the other is how two models are made to talk.
    talks = any(roles.get(role) == name for name, role in roles.items() if role != name)
    values_are_roles = set(roles.values()) <= {*THE_USER, *THE_ASSISTANT, "system", "tool"}
    return roles if has_both and values_are_roles and not talks else {}


def _text_entries_of_dict(node: ast.Dict) -> dict[str, str]:
    """The entries of a written dictionary whose key and value are both texts."""
    texts: dict[str, str] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
            if isinstance(key.value, str) and isinstance(value.value, str):
                texts[key.value] = value.value
    return texts


def _roles_of_conditional_expression(node: ast.AST) -> dict[str, str]:
    """Name in the rows -> role, of `"user" if turn["from"] == "human" else "assistant"`."""
    if not isinstance(node, ast.IfExp):
        return {}
    chosen = [part.value for part in (node.body, node.orelse) if isinstance(part, ast.Constant)]
    name = _constant_of_equality(node.test)
    if name is None or set(chosen) != {"user", "assistant"}:
        return {}
    # `"assistant" if role == "user"`: two models talk, and each is the other's user.
    is_known = name in ASKERS | ANSWERERS and name not in ("user", "assistant")
    return {name: str(chosen[0])} if is_known else {}


def _roles_of_branches(node: ast.AST) -> dict[str, str]:
    """Name in the rows -> role, of an `if` and its `else` that each name one role, one the user's,
    one the assistant's.
    """
    if not isinstance(node, ast.If):
        return {}
    name = _constant_of_equality(node.test)
    chosen, other = _only_role_named_in(node.body), _only_role_named_in(node.orelse)
    is_known = name in ASKERS | ANSWERERS and name not in ("user", "assistant")
    if name is None or not is_known or {chosen, other} != {"user", "assistant"}:
        return {}
    return {name: str(chosen)}


def _only_role_named_in(body: list[ast.stmt]) -> str | None:
    """The one role that some statements name; None where they name none, or several."""
    texts = {
        part.value
        for statement in _statements_of_arm_or_elif(body)
        for part in ast.walk(statement)
        if isinstance(part, ast.Constant) and part.value in ("user", "assistant")
    }
    return str(texts.pop()) if len(texts) == 1 else None


def _statements_of_arm_or_elif(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of an arm; of an `elif` those that it leads to."""
    if len(body) == 1 and isinstance(body[0], ast.If) and not body[0].orelse:
        return body[0].body
    return body


def _constant_of_equality(test: ast.expr) -> str | None:
    """The constant that a test compares with, `human` of `turn["from"] == "human"`; None of any
    other test.
    """
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    sides = [test.left, *test.comparators]
    constants = [side.value for side in sides if isinstance(side, ast.Constant)]
    is_equal = isinstance(test.ops[0], ast.Eq)
    return str(constants[0]) if is_equal and len(constants) == 1 else None


def _messages_of_list(node: ast.List) -> list[tuple[str, ast.expr]]:
    """Role and content of each message of a list; empty where one is not written as a dict with a role."""
    turns = []
    for element in node.elts:
        entries = (
            {
                key.value: value
                for key, value in zip(element.keys, element.values, strict=True)
                if isinstance(key, ast.Constant)
            }
            if isinstance(element, ast.Dict)
            else {}
        )
        role, content = entries.get("role"), entries.get("content")
        if not isinstance(role, ast.Constant) or content is None:
            return []
        turns.append((str(role.value), content))
    return turns


def _words_match_only_pattern(words: str, pattern: re.Pattern[str], other: re.Pattern[str]) -> bool:
    """Does a name, a column or a field say so, and none of the other kind?"""
    return bool(pattern.search(words)) and not other.search(words)
