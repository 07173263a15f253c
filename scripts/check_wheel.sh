#!/usr/bin/env bash
# Builds the source distribution and the wheel, checks their metadata, installs the wheel without
# Paddle in an environment of its own, and runs a saved program there. Leaves the files in build/dist.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup_venv.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf build/dist
.venv/bin/python -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check build twine
"$work/tools/bin/python" -m build --outdir build/dist . > "$work/build.log" 2>&1 ||
  { cat "$work/build.log" >&2; exit 1; }
"$work/tools/bin/python" -m twine check --strict build/dist/*

cat > "$work/save.py" <<'PYTHON'
import sys

import paddle
from paddle.static import InputSpec

import dy2st


def decay(x):
    y = x[0]
    for row in x:
        y = 0.9 * y + row
    return y


dy2st.save(decay, sys.argv[1], [InputSpec([None, 3], "float32", "x")])
PYTHON
.venv/bin/python -W ignore "$work/save.py" "$work/saved.dy2st"

.venv/bin/python -m venv "$work/clean"
"$work/clean/bin/python" -m pip install --quiet --disable-pip-version-check build/dist/*.whl
cd "$work"  # here and with -I the packages of the checkout are out of sight
clean/bin/python -I - saved.dy2st <<'PYTHON'
import importlib.util
import sys

import numpy as np

import dy2st

assert importlib.util.find_spec("paddle") is None
x = np.linspace(0, 1, 12, dtype="float32").reshape(4, 3)
want = x[0]
for row in x:
    want = np.float32(0.9) * want + row
np.testing.assert_allclose(dy2st.load(sys.argv[1])(x), want, rtol=1e-6)
print("check_wheel: a saved program runs from", dy2st.__file__.split("/lib/")[1])
PYTHON
