#!/usr/bin/env bash
# Sets up .venv and runs the demo: parity and speed of a translated model, with and without Paddle.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup_venv.sh
export GLOG_minloglevel=2  # Paddle's log: errors only
exec .venv/bin/python -W "ignore:No ccache found" scripts/demo.py
