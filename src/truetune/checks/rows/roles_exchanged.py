"""Roles are swapped: the user's turns are trained on as the assistant's.

## What it does
If settings say which role in the rows is the user and which the assistant (Axolotl's `roles`, `--map
role.assistant=agent`), it counts the chats that begin with the assistant and end with the user. It fires if nearly all
chats (90 %) do. If the rows use the standard roles, it needs ten chats. It also fires if the names in the settings show
it: `customer` is mapped to the assistant and `agent` to the user, and the rows have both.

## Why it is bad
The model learns to ask and to complain, and never sees an answer in the loss. The loss falls as usual.

## Example
```yaml
spec: {map: {role.user: agent, role.assistant: customer}}
data:
  - {messages: [{role: customer, content: "Is it open?"}, {role: agent, content: It is open.}]}
  - {messages: [{role: customer, content: "Until when?"}, {role: agent, content: Until four.}]}
```

## Use instead
```yaml
spec: {map: {role.user: customer, role.assistant: agent}}
data:
  - {messages: [{role: customer, content: "Is it open?"}, {role: agent, content: It is open.}]}
  - {messages: [{role: customer, content: "Until when?"}, {role: agent, content: Until four.}]}
```

## Fix safety
Swapping the names in the settings is safe. If you want a model that plays the user, ignore the rule (`--ignore
roles-exchanged`).

## References
- https://docs.axolotl.ai/docs/dataset-formats/conversation.html (`roles`, `message_property_mappings`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.data.user_map_of_message_field_names import truetune_role_by_role_in_file
from truetune.encoding.batch import Batch

# Chosen; in LLaMA-Factory's demo data and tinker-cookbook's chats (eleven sets, 4,268 rows) no chat
# is so. At 0.5 logs in which a bot greets and the user thanks would be called exchanged; at 0.99 a
# few rows of another kind would hide a map that is the wrong way round.
MIN_SHARE = 0.9
"""Chats in which the assistant greets first and the user has the last word are some of any log, never nearly all"""


# Names that exports of help desks, phone systems and chats use, in the languages of public data sets.
ASKING_NAMES = frozenset(
    (
        "human", "user", "customer", "client", "caller", "visitor", "guest", "patient", "buyer", "shopper", "student",
        "requester", "prompter", "inbound", "incoming", "consumer", "citizen",
        "kunde", "kundin", "anrufer", "patientin", "schüler", "cliente", "usuario", "usuário", "paciente", "klant",
        "utilisateur", "appelant", "utente", "klient", "müşteri", "клиент", "пользователь", "客户", "用户", "顧客",
    )
)  # fmt: skip
ANSWERING_NAMES = frozenset(
    (
        "gpt", "assistant", "bot", "agent", "ai", "chatgpt", "operator", "doctor", "support", "representative",
        "advisor", "therapist", "tutor", "teacher", "staff", "outbound", "outgoing", "employee", "seller", "clerk",
        "mitarbeiter", "berater", "arzt", "agente", "asistente", "assistente", "medewerker", "conseiller", "operatore",
        "operatör", "оператор", "ассистент", "客服", "助手", "オペレーター",
    )
)  # fmt: skip
MIN_CHATS = 10
"""Rows that name the roles themselves: a few may be chats whose last answer is not there yet"""


class RolesExchanged(DataRule):
    code = "ROW001"
    fault = Fault.ROLES_SWAPPED
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.roles = truetune_role_by_role_in_file(setup.spec.map)
        self.chats = self.with_sides_exchanged = 0
        self.cases: list[Case] = []
        self.first_cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the chats of a batch that begin with the assistant and end with the user."""
        for row in batch.rows:
            roles = [str(message.get("role")) for message in row.messages]
            turns = [role for role in roles if role != "system"]
            if not row.is_chat or row.is_preference or len(turns) < 2:
                continue
            self.chats += 1
            if "assistant" in turns:
                is_exchanged = turns[0] == "assistant" and turns[-1] == "user"
                self._count_chat(batch, row, roles.index("assistant"), is_exchanged=is_exchanged)

    def _count_chat(
        self, batch: Batch, row: Conversation, first: int, *, is_exchanged: bool
    ) -> None:
        """Keep the first assistant turn (message `first`) of a chat as a case, and count exchanged roles."""
        if self.roles and len(self.first_cases) < MAX_CASES:
            self.first_cases.append(case_in_message(batch, row, first, "this turn is trained on"))
        if not is_exchanged:
            return
        self.with_sides_exchanged += 1
        if len(self.cases) < MAX_CASES:
            text = "the chat begins with this turn"
            self.cases.append(case_in_message(batch, row, first, text))

    def unmet(self) -> Unmet | None:
        """Unmet without chats; also where they are few, and no settings name the roles."""
        if not self.chats:
            return NO_CHATS
        if self.roles or self.chats >= MIN_CHATS:
            return None
        return Unmet(
            f"it needs {MIN_CHATS} chats, or roles in the settings",
            "check a file of more chats, or name the roles: --map role.user=... --map role.assistant=...",
        )

    def measurement_if_clean(self) -> Measurement:
        """How many chats begin with the assistant and end with the user."""
        return make_count_measurement(
            "chats that begin with the assistant and end with the user",
            self.with_sides_exchanged,
            self.chats,
        )

    def findings(self) -> Iterator[Finding]:
        asker, answerer = self._names_mapped_to_opposite_roles()
        if asker and answerer and self.chats:
            yield self.finding(
                f"the settings take {asker} as assistant and {answerer} as user: the model is trained on the turns"
                f" of {asker}, in {self.chats:,} chats",
                "swap the two in the settings: the assistant is who answers",
                cases=self.cases or self.first_cases,
                count=self.chats,
                total=self.chats,
            )
            return
        if self.unmet() is not None or self.with_sides_exchanged < MIN_SHARE * self.chats:
            return
        counts = f"{self.with_sides_exchanged:,} of {self.chats:,} chats begin with the assistant and end with the user"
        yield self.finding(
            (
                f"{counts}, by the roles of the settings: they take {self._mapped_names_of_role('assistant')} as"
                f" assistant and {self._mapped_names_of_role('user')} as user"
                if self.roles
                else (
                    f"{counts}: the roles in the rows seem swapped, so the model is trained on the user's turns"
                )
            ),
            "swap the two in the settings: the assistant is who answers"
            if self.roles
            else "swap the two roles in the rows: the assistant is who answers",
            cases=self.cases,
            count=self.with_sides_exchanged,
            total=self.chats,
        )

    def _names_mapped_to_opposite_roles(self) -> tuple[str, str]:
        """(name of an asking side that is mapped to the assistant, name of an answering side that
        is mapped to the user); a name is empty if no such one is mapped so.

        Callers need both: one alone may be a word with another meaning in these rows.
        """
        asker = _first_unambiguous_name(self.roles, "assistant", ASKING_NAMES, ANSWERING_NAMES)
        answerer = _first_unambiguous_name(self.roles, "user", ANSWERING_NAMES, ASKING_NAMES)
        return asker, answerer

    def _mapped_names_of_role(self, role: str) -> str:
        """What the rows call a role, by the settings."""
        return ", ".join(name for name, meaning in self.roles.items() if meaning == role) or role


def _first_unambiguous_name(
    roles: Mapping[str, str], role: str, wanted: frozenset[str], other: frozenset[str]
) -> str:
    """The first name of a role that is one of these, where none of its names is of the other side; else empty."""
    names = [name for name, meaning in roles.items() if meaning == role]
    plain = [name.strip().casefold() for name in names]
    if other.intersection(plain):
        return ""
    return next((name for name, word in zip(names, plain, strict=True) if word in wanted), "")
