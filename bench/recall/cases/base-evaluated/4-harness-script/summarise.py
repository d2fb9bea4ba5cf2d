import json
import pathlib
import sys


def newest(folder):
    found = sorted(pathlib.Path(folder).rglob("results_*.json"), key=lambda p: p.stat().st_mtime)
    if not found:
        raise SystemExit(f"no results in {folder}")
    return found[-1]


def main(folder):
    path = newest(folder)
    results = json.loads(path.read_text())["results"]
    lines = ["| task | metric | value | stderr |", "|---|---|---|---|"]
    for task, values in sorted(results.items()):
        for key, value in values.items():
            if "stderr" in key or not isinstance(value, float):
                continue
            name, _, filt = key.partition(",")
            err = values.get(f"{name}_stderr,{filt}", "")
            lines.append(f"| {task} | {key} | {value:.4f} | {err if err == '' else f'{err:.4f}'} |")
    table = "\n".join(lines)
    print(table)
    (path.parent / "summary.md").write_text(table + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
