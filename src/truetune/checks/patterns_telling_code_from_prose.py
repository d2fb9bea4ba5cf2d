"""Patterns that tell code, formulas and talk of them from prose, for rules that look for faults of prose."""

from __future__ import annotations

import re

# A block of more characters than that is read as prose. Without a limit a text that opens blocks and never closes one
# is read to its end once for each of them: 14 s for six texts of 20,000 characters that repeat `\(`, 6 s with it.
MAX_BLOCK = 5000
"""Characters of a formula, or of code between tags, that is left out of the prose"""
CODE = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`"
    rf"|<(pre|code|script|style)\b.{{0,{MAX_BLOCK}}}?</\1>"
    rf"|\$\$.{{0,{MAX_BLOCK}}}?\$\$|\$[^$\n]+\$"
    rf"|\\\[.{{0,{MAX_BLOCK}}}?\\\]|\\\(.{{0,{MAX_BLOCK}}}?\\\)"
    rf"|\\begin\{{(\w+\*?)\}}.{{0,{MAX_BLOCK}}}?\\end\{{\2\}}"
    r"|\\\w+(?:\[[^\]]*\])?(?:\{[^{}]*\})+",
    re.DOTALL,
)
"""Code and formulas inside an answer"""
LOOKS_LIKE_CODE = re.compile(
    r"^[^\S\n]*(?:def |class |import |from \w+ import |function\b|const |let |var |public |private"
    r" |#include|SELECT |<\?|<!|"
    r"<\w+[^>\n]*>[^\S\n]*$|return\b|if \(|for \(|while"
    r" \(|[\w.]+\(.*\);?[^\S\n]*$|[{}\]];?,?[^\S\n]*$|.*[;{][^\S\n]*$|\w+ = )",
    re.MULTILINE,
)
ABOUT_CODE = re.compile(
    r"\b(?:templates?|placeholders?|code|codes|function|script|program\w*|python|java\w*|c\+\+|c#|sql|html|css|php|ruby|"
    r"rust|golang|bash|shell|regex|jinja|handlebars|mustache|latex|json|yaml|xml|f-string|printf|variables?|"
    r"format"
    r" string|class|method|query|api|react|vue|angular|django|flask|swift|kotlin|algorithm|syntax|prompt|"
    r"letters?|e-?mails?|form)\b|代码|模板|函数|编程|占位|脚本|变量",
    re.IGNORECASE,
)
"""Words of a prompt that asks for code, or for a text with places to fill in"""
