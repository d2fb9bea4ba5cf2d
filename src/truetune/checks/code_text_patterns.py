"""Patterns that tell code, formulas and talk of them from prose, for rules that look for faults of prose."""

from __future__ import annotations

import re

CODE = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`|<(pre|code|script|style)\b.*?</\1>|"
    r"\$\$.*?\$\$|\$[^$\n]+\$|\\\[.*?\\\]|\\\(.*?\\\)|"
    r"\\begin\{(\w+\*?)\}.*?\\end\{\2\}|\\\w+(?:\[[^\]]*\])?(?:\{[^{}]*\})+",
    re.DOTALL,
)
"""Code and formulas inside an answer"""
LOOKS_LIKE_CODE = re.compile(
    r"^\s*(?:def |class |import |from \w+ import |function\b|const |let |var |public |private"
    r" |#include|SELECT |<\?|<!|"
    r"<\w+[^>]*>\s*$|return\b|if \(|for \(|while"
    r" \(|[\w.]+\(.*\);?\s*$|[{}\]];?,?\s*$|.*[;{]\s*$|\w+ = )",
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
