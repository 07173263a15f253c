"""`import dy2st`: quick, without Paddle, and clear about what is missing or in the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dy2st

ROOT = Path(dy2st.__file__).parent.parent
NEED_PADDLE = (
    "AliasWarning CopyWarning Explanation RecompileWarning StaticFunction code cond explain "
    "flex_scan nn program report save scan stream taps to_static while_loop"
).split()
BLOCK_PADDLE = "import sys; sys.modules['paddle'] = None\n"


def python(code: str, path: Path | str = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    env = {"PYTHONPATH": f"{path}:{ROOT}", "PATH": ""}
    return subprocess.run(command, cwd=path, env=env, text=True, capture_output=True)


def test_the_import_loads_nothing_heavy():
    heavy = ["paddle", "numpy", "llvmlite", "safetensors", "networkx", "ir", "executor"]
    done = python(f"import dy2st, sys; print([q for q in {heavy} if q in sys.modules])")
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_import_takes_less_than_a_third_of_a_second():
    """Of processor time, which a busy machine does not change much: the least of three."""
    code = "import time; t = time.process_time(); import dy2st; print(time.process_time() - t)"
    assert min(float(python(code).stdout) for _ in range(3)) < 0.3


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("name", NEED_PADDLE)
def test_a_name_that_needs_paddle_names_the_extra(name):
    done = python(BLOCK_PADDLE + f"import dy2st; dy2st.{name}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: dy2st.{name} needs Paddle")
    assert 'pip install "dy2st[paddle]"' in done.stderr


@pytest.mark.sampled
@pytest.mark.quick("Dy2stError")
@pytest.mark.parametrize("name", sorted(set(dy2st.__all__) - set(NEED_PADDLE)))
def test_other_names_do_without_paddle(name):
    done = python(BLOCK_PADDLE + f"import dy2st; print(dy2st.{name}.__name__)")
    assert done.stdout.strip() == name, done.stderr


@pytest.mark.parametrize("package", ["ir", "executor"])
def test_a_module_in_the_way_is_named(package, tmp_path):
    (tmp_path / f"{package}.py").write_text("")
    done = python("import dy2st", tmp_path)
    assert done.returncode == 1
    assert f"dy2st needs its own package '{package}'" in done.stderr
    assert str(tmp_path / f"{package}.py") in done.stderr


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'to_dynamic'"):
        dy2st.to_dynamic  # noqa: B018


def test_every_public_name_is_listed():
    assert set(dy2st.__all__) <= set(dir(dy2st))
