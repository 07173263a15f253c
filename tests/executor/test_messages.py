"""Errors with values of the program in their text."""

import numpy as np
import pytest

import executor
from ir import VerifyError, parse, verify
from ir.interpreter import evaluate
from tests.executor.launch_machine import CHECKED

TEXT = """program p(%x: f32[N] arg "x") {
  %s = sum(%x)             : f32[]
  %h = cast(%s, dtype=f64) : f64[]
  %n = cast(%s, dtype=i64) : i64[]
  %zero = full(value=0.0, dtype=f32) : f32[]
  %ok = less_than(%s, %zero) : bool[]
  scan %t < N {
    const %a = %ok : bool[]
    const %b = %s : f32[]
    const %c = %h : f64[]
    const %d = %n : i64[]
    body
      check(%a, %b, %c, %d, %a, %t, error="ValueError", message=MESSAGE, shown=SHOWN)
  }
  return %s
}"""
MESSAGE = "|".join("\ufffc" * 5)
SHOWN = '[["format", ".2f"], ["str", ""], ["%", "%05d"], ["repr", ""], ["format", ">3"]]'
WORDS = "5.50|5.5|00005|False|  0"


@pytest.mark.parametrize("backend", ["cpu", CHECKED.name])
def test_a_failed_check_shows_its_values(backend):
    text = TEXT.replace("MESSAGE", f'"{MESSAGE}"').replace("SHOWN", SHOWN)
    p = verify(parse(text))
    f = executor.compile(p, backend=backend)
    assert f(np.array([-1.0], np.float32))[0] == -1
    for call in (f, lambda x: evaluate(p, [x])):
        with pytest.raises(ValueError) as caught:
            call(np.array([2.0, 3.5], np.float32))
        assert str(caught.value) == WORDS


def shows(message, *shown):
    names = ", ".join(f'["{how}", "{spec}"]' for how, spec in shown)
    return f"""program p(%x: f32[] arg "x", %ok: bool[] arg "ok") {{
  check(%ok{", %x" * len(shown)}, error="ValueError", message="{message}", shown=[{names}])
  return %x
}}"""


@pytest.mark.parametrize(
    "text",
    [
        shows("none", ("str", "")),
        shows("\ufffc \ufffc", ("str", "")),
        shows("\ufffc", ("format", "d")),
        shows("\ufffc", ("format", "1000000d")),
        shows("\ufffc", ("%", "%1000000d")),
        shows("\ufffc", ("%", "%(x)s")),
        shows("\ufffc", ("eval", "")),
        shows("\ufffc" * 9, *[("str", "")] * 9),
    ],
)
def test_texts_that_do_not_fit_are_refused(text):
    with pytest.raises(VerifyError):
        verify(parse(text))
