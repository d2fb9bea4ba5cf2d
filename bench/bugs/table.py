"""Results as tables."""

from __future__ import annotations


def drawn(name, result, *, verbose):
    from collections import Counter
    lines=[]
    for t in result:
        flag = {"found":"ok"}.get(t.verdict,t.verdict.upper())
        if flag!="ok" or t.alarms or verbose:
            lines.append(f"{flag:10} {t.case} [{t.family}] by={list(t.by)} alarms={list(t.alarms)} {t.note} {t.seconds}")
            if verbose: lines += ["      "+m for m in t.messages]
    lines.append(str(Counter(t.verdict for t in result))+f" alarms={sum(bool(t.alarms) for t in result)}")
    return "\n".join(lines)
