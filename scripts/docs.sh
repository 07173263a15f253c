#!/usr/bin/env bash
# Builds the documentation as a site in build/site. Its tools live in an environment of their own,
# build/docs-venv: they need neither Paddle nor the package itself. Arguments go to `mkdocs build`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=build/docs-venv
if [ ! -x "$venv/bin/python" ]; then
  python=$([ -x .venv/bin/python ] && echo .venv/bin/python || command -v python3)
  echo "docs: making $venv"
  "$python" -m venv "$venv"
fi
if [ setup.cfg -nt "$venv/.installed" ]; then
  echo "docs: installing MkDocs into $venv"
  "$venv/bin/python" - <<'PYTHON' > "$venv/requirements.txt"
import configparser

config = configparser.ConfigParser()
config.read("setup.cfg")
print(config["options.extras_require"]["docs"])
PYTHON
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$venv/requirements.txt"
  touch "$venv/.installed"
fi
"$venv/bin/python" -m mkdocs build --quiet "$@"
echo "docs: build/site/index.html"
