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


AXES = """program p(%x: f32[N,4] arg "x", %ok: bool[N] arg "ok") {
  scan %t < N {
    seq %a = %ok[t] : bool[]
    seq %r = %x[t] : f32[4]
    const %x1 = %x : f32[N,4]
    body
      %b = strided(%r, shape=[2], strides=[-2], offset=3) : f32[2]
      %c = transpose(%x1, perm=[1,0]) : f32[4,N]
      check(%a, %t, %r, %b, %c, error="ValueError", message="S at S: S, S, S", shown=SHOWN)
  }
  return %x
}"""
WHOLE = '[["str", ""], ["tensor", "False"], ["array", "repr"], ["array", "str"]]'


@pytest.mark.parametrize("backend", ["cpu", CHECKED.name])
def test_a_failed_check_shows_tensors_where_they_lie(backend):
    text = AXES.replace("S at S", "at S").replace("S, ", "\ufffc, ").replace("S:", "\ufffc:")
    p = verify(parse(text.replace(', S"', ', \ufffc"').replace("SHOWN", WHOLE)))
    x, ok = np.arange(12, dtype=np.float32).reshape(3, 4) / 2, np.array([True, False, False])
    f = executor.compile(p, backend=backend)
    row = "Tensor(shape=[4], dtype=float32, place=Place(cpu), stop_gradient=False,\n"
    row += "       [2.        , 2.50000000, 3.        , 3.50000000])"
    for call in (f, lambda *a: evaluate(p, a)):
        with pytest.raises(ValueError) as caught:
            call(x, ok)
        assert str(caught.value) == f"at 1: {row}, {x[1][3::-2]!r}, {x.T}"


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
        shows("\ufffc", ("tensor", "")),
        AXES.replace("SHOWN", WHOLE.replace("tensor", "repr").replace("False", "")),
        shows("\ufffc" * 9, *[("str", "")] * 9),
    ],
)
def test_texts_that_do_not_fit_are_refused(text):
    with pytest.raises(VerifyError):
        verify(parse(text))
