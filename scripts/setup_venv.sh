#!/usr/bin/env bash
# Makes .venv in the repository root and installs the package with its extras, if either is out of
# date. The other scripts run it first; it prints nothing when there is nothing to do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

supported() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

find_python() {
  local name
  for name in python3 python3.13 python3.12 python3.11 python3.10 python; do
    if supported "$name"; then
      command -v "$name"
      return
    fi
  done
  echo "setup: no Python 3.10 to 3.13 on PATH. Install one, or put it on PATH as python3." >&2
  return 1
}

if [ ! -x .venv/bin/python ]; then
  python=$(find_python)
  echo "setup: making .venv"
  if ! "$python" -m venv .venv; then
    rm -rf .venv
    echo "setup: $python cannot make a virtual environment (on Debian: install python3-venv)." >&2
    exit 1
  fi
elif ! supported .venv/bin/python; then
  echo "setup: the Python of .venv is not 3.10 to 3.13. Remove .venv and run this again." >&2
  exit 1
fi

wanted=$(.venv/bin/python -c 'import hashlib, sys
h = hashlib.sha256()
for name in ("setup.cfg", "pyproject.toml"):
    h.update(open(name, "rb").read())
print(h.hexdigest(), sys.version.split()[0])')
stamp=.venv/.dy2st-installed
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  echo "setup: installing dy2st and what it needs into .venv"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[paddle,test,dev]"
  echo "$wanted" > "$stamp"
fi
