#!/usr/bin/env bash
# Everything that must pass: lint, types, tests. Arguments go to pytest: scripts/test.sh -m "not slow"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup_venv.sh
# modules are compiled, and the asserts of tests rewritten, for the next process too
unset PYTHONDONTWRITEBYTECODE
.venv/bin/ruff check --quiet .
.venv/bin/mypy -p ir -p executor -p dy2st
.venv/bin/python -m pytest -n 2 "$@"
