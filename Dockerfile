# truetune without torch: check, lint, view, diagnose and report.
#   docker build -t truetune .
#   docker run --rm -v "$PWD:/work" truetune check chats.jsonl -t path/to/model
FROM python:3.13-slim
WORKDIR /opt/truetune
COPY pyproject.toml README.md LICENSE ./
COPY src src
# The command of the README: an image whose demo fails is not built.
RUN python -m venv .venv && .venv/bin/pip install . && .venv/bin/truetune demo
# No write access to the user's files is needed for a check, and none as root.
USER nobody
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["/opt/truetune/.venv/bin/truetune"]
CMD ["--help"]
