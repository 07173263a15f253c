#!/usr/bin/env bash
# The random cases of a night, from a seed of the day, and the rows of tests that the suite leaves out.
# Prints the seed and the results of each kind. Exit code 1 if anything differs.
#   NIGHTLY_SEED   the first seed: by default the number of the day times 100000
#   NIGHTLY_SCALE  per cent of the usual number of cases
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PYTHONPATH=$PWD
python=${PYTHON:-.venv/bin/python}
seed=${NIGHTLY_SEED:-$(($(date +%s) / 86400 * 100000))}
scale=${NIGHTLY_SCALE:-100}
failed=()

night() { # name, command ...
    echo "==== $1, first seed $seed"
    "${@:2}" || failed+=("$1")
}
fuzz() { # name, cases, script and options
    night "$1" "$python" "scripts/fuzz/$3" --seed "$seed" --count $((($2 * scale + 99) / 100)) "${@:4}"
}

fuzz "programs" 4000 programs.py
fuzz "gradients of programs" 2000 programs.py --gradients --sizes turns
fuzz "views" 4000 views.py
fuzz "gradients of views" 1000 views.py --gradients
fuzz "indices" 4000 indexing.py
fuzz "places" 4000 places.py --native 10
fuzz "loops" 5000 loops.py --native 20
fuzz "draws" 2000 draws.py
fuzz "gradients of draws" 1000 draws.py --gradients
fuzz "files" 20000 files.py
fuzz "lists" 2000 lists.py
fuzz "names of containers" 4000 names.py
fuzz "sizes from data" 2000 sizes.py
fuzz "schedules of a GPU" 5000 schedules.py
fuzz "Python state" 2000 state.py
night "conversions" env DY2ST_SEED="$seed" "$python" -m pytest tests/dy2st/convert/test_convert_random.py
night "executor" env DY2ST_SEED="$seed:$((20 * scale))" "$python" -m pytest -n 2 \
    tests/executor/test_random_programs.py
night "rows left out of the suite" "$python" -m pytest -n 2 --nightly -m nightly

echo "==== seed $seed: ${#failed[@]} kinds with differences"
printf '%s\n' ${failed[@]+"${failed[@]}"}
exit $((${#failed[@]} > 0))
