"""Errors of the functional loops: they name the argument, and are the same translated as in eager
code."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

import dy2st
from tests.check import data

scan, flex, loop = dy2st.scan, dy2st.flex_scan, dy2st.while_loop
LINEAR = paddle.nn.Linear(3, 3)


def same(c, x):
    return c, x


def keyword_only(c, x, *, k):
    return c, x


def changes_later(h, x):
    calls = [0]

    def body(c, q):
        calls[0] += 1
        return c, (q if calls[0] < 3 else q.sum())

    return scan(body, h, x)


def core(x, v):
    return x, v


class Two(paddle.nn.Layer):
    def forward(self, a, b, c):
        return a, b


TWO = Two()
F64 = ((3,), "float64")
#: a function of h [3] and x [6, 3], the type of its error, and what the message says
ERRORS = {
    # ------------------------------------------------------------ results
    "one_result": (lambda h, x: scan(lambda c, q: c, h, x), TypeError,
                   r"scan: the body must return \(carry, y\), it returns a Tensor"),
    "three_results": (lambda h, x: scan(lambda c, q: (c, c, c), h, x), TypeError,
                      "it returns a tuple of 3"),
    "no_result": (lambda h, x: scan(lambda c, q: None, h, x), TypeError, "returns a NoneType"),
    "output_that_is_text": (lambda h, x: scan(lambda c, q: (c, "y"), h, x), TypeError,
                            "scan: y is of type str, not a tensor"),
    "nested_output": (lambda h, x: scan(lambda c, q: (c, {"k": [q, "y"]}), h, x), TypeError,
                      r"y\['k'\]\[1\] is of type str"),
    "output_that_changes": (changes_later, TypeError, "ys must have one type in all steps"),
    "output_without_the_axis": (lambda h, x: scan(lambda c, q: (c, q.sum()), x[:, 0], x, axis=1),
                                ValueError, "cannot be along axis 1"),
    # ------------------------------------------------------------ carries
    "carry_of_another_shape": (lambda h, x: scan(lambda c, q: (c[:2], q), h, x), TypeError,
                               r"init is float64\[3\], and the body returns float64\[2\]"),
    "carry_of_another_type": (lambda h, x: scan(lambda c, q: (c.astype("float32"), q), h, x),
                              TypeError, r"init is float64\[3\], and the body returns float32"),
    "carry_that_broadcasts": (lambda h, x: scan(lambda c, q: (c + q, q), h.sum(), x), TypeError,
                              r"init is float64\[\], and the body returns float64\[3\]"),
    "carry_of_another_structure": (lambda h, x: scan(lambda c, q: ((c, c), q), h, x), TypeError,
                                   "is a tuple of 2, not a tensor"),
    "list_for_a_tuple": (lambda h, x: scan(lambda c, q: ([*c], q), (h, h), x), TypeError,
                         "is a list of 2, not a tuple of 2"),
    "longer_tuple": (lambda h, x: scan(lambda c, q: ((*c, q), q), (h, h), x), TypeError,
                     "is a tuple of 3, not a tuple of 2"),
    "other_keys": (lambda h, x: scan(lambda c, q: ({"b": q}, q), {"a": h}, x), TypeError,
                   "the keys 'b', not a dict with the keys 'a'"),
    "carry_that_becomes_none": (lambda h, x: scan(lambda c, q: (None, q), h, x), TypeError,
                                "is None, not a tensor"),
    "none_that_becomes_a_carry": (lambda h, x: scan(lambda c, q: (q, q), None, x), TypeError,
                                  "is a tensor, not None"),
    "nested_carry": (lambda h, x: scan(lambda c, q: ({"s": [c["s"][0], q.sum()]}, q),
                                       {"s": [h, h]}, x), TypeError, r"init\['s'\]\[1\] is "),
    "carry_of_numbers": (lambda h, x: scan(lambda c, q: (c + q.sum(), q), 0, x), TypeError,
                         r"init is int64\[\], and the body returns float64\[\]"),
    "init_that_is_text": (lambda h, x: scan(same, "h", x), TypeError,
                          "scan: init is of type str, not a tensor"),
    "init_that_is_an_array": (lambda h, x: scan(same, [h, np.zeros(3)], x), TypeError,
                              r"scan: init\[1\] is of type ndarray, not a tensor"),
    # ------------------------------------------------------------ sequences
    "different_lengths": (lambda h, x: scan(same, h, (x, x[:4])), ValueError,
                          r"xs\[1\] has 4 steps, xs\[0\] has 6"),
    "different_lengths_in_a_dict": (lambda h, x: scan(same, h, {"a": x, "b": h}), ValueError,
                                    r"xs\['b'\] has 3 steps, xs\['a'\] has 6"),
    "another_length": (lambda h, x: scan(same, h, x, length=5), ValueError,
                       "xs has 6 steps, length is 5"),
    "no_length": (lambda h, x: scan(same, h), ValueError, "scan: give xs or a length"),
    "no_leaves": (lambda h, x: scan(same, h, (None, [])), ValueError, "give xs or a length"),
    "negative_length": (lambda h, x: scan(same, h, length=-1), ValueError,
                        "length must be 0 or more, it is -1"),
    "length_that_is_a_float": (lambda h, x: scan(same, h, length=2.0), TypeError,
                               "length must be an int, it is of type float"),
    "length_that_is_a_tensor": (lambda h, x: scan(same, h, length=x.sum()), TypeError,
                                "length must be an int"),
    "sequence_that_is_a_number": (lambda h, x: scan(same, h, [x, 3]), TypeError,
                                  r"xs\[1\] is of type int, not a tensor"),
    "sequence_that_is_an_array": (lambda h, x: scan(same, h, np.zeros([6, 3])), TypeError,
                                  "xs is of type ndarray"),
    "sequence_without_axes": (lambda h, x: scan(same, h, x.sum()), ValueError,
                              r"xs has no axis 0: float64\[\]"),
    "axis_out_of_range": (lambda h, x: scan(same, h, x, axis=2), ValueError, "xs has no axis 2"),
    "negative_axis_out_of_range": (lambda h, x: scan(same, h, x, axis=-3), ValueError,
                                   "xs has no axis -3"),
    "axis_that_is_a_float": (lambda h, x: scan(same, h, x, axis=1.0), TypeError,
                             "axis must be an int"),
    # ------------------------------------------------------------ bodies
    "body_that_is_none": (lambda h, x: scan(None, h, x), TypeError, "scan: body must be callable"),
    "body_of_one_argument": (lambda h, x: scan(lambda c: (c, c), h, x), TypeError,
                             "body is called with 2 positional arguments: too many"),
    "body_of_three_arguments": (lambda h, x: scan(lambda a, b, c: (a, b), h, x), TypeError,
                                "missing a required argument: 'c'"),
    "body_with_a_keyword": (lambda h, x: scan(keyword_only, h, x), TypeError,
                            "missing a required (keyword-only )?argument: 'k'"),
    "layer_of_one_argument": (lambda h, x: scan(LINEAR, h, x), TypeError, "too many positional"),
    "layer_of_three_arguments": (lambda h, x: scan(TWO, h, x), TypeError, "argument: 'c'"),
    "error_of_the_body": (lambda h, x: scan(lambda c, q: 1 / 0, h, x), ZeroDivisionError,
                          "division by zero"),
    # ------------------------------------------------------------ options
    "unknown_keyword": (lambda h, x: scan(same, h, x, revers=True), TypeError,
                        "unexpected keyword argument 'revers'"),
    "reverse_that_is_a_number": (lambda h, x: scan(same, h, x, reverse=1), TypeError,
                                 "reverse must be a bool"),
    "unroll_of_zero": (lambda h, x: scan(same, h, x, unroll=0), ValueError,
                       "unroll must be 1 or more, it is 0"),
    "unroll_of_a_float": (lambda h, x: scan(same, h, x, unroll=1.5), TypeError,
                          "unroll must be an int"),
    "checkpoint_of_another_name": (lambda h, x: scan(same, h, x, checkpoint="all"), ValueError,
                                   "checkpoint must be"),
    "checkpoint_of_zero": (lambda h, x: scan(same, h, x, checkpoint=0), ValueError,
                           "checkpoint must be"),
    "gradient_of_no_steps": (lambda h, x: scan(same, h, x, truncate_gradient=0), ValueError,
                             "truncate_gradient must be 1 or more"),
    "gradient_of_true_steps": (lambda h, x: scan(same, h, x, truncate_gradient=True), TypeError,
                               "truncate_gradient must be an int"),
    # ------------------------------------------------------------ templates
    "too_many_templates": (lambda h, x: scan(same, h, x, output_templates=[F64, F64]), ValueError,
                           "has 2 templates, the body gives 1 output"),
    "template_of_another_type": (lambda h, x: scan(same, h, x, output_templates=((4,), "float64")),
                                 ValueError, r"is float64\[4\], the body gives float64\[3\]"),
    "template_that_is_a_number": (lambda h, x: scan(same, h, x, output_templates=3), TypeError,
                                  r"output_templates must be \(shape, dtype\), it is 3"),
    "template_without_a_type": (lambda h, x: scan(same, h, x, output_templates=(3, "float64")),
                                TypeError, r"must be \(shape, dtype\)"),
    "template_of_no_type": (lambda h, x: scan(same, h, x, output_templates=((3,), "float65")),
                            TypeError, "no element type of Paddle: 'float65'"),
    "template_of_a_negative_size": (
        lambda h, x: scan(same, h, x, output_templates=((-1,), "float64")), ValueError,
        r"negative size: \[-1\]"),
    "template_elsewhere": (
        lambda h, x: scan(same, h, x, output_templates=((3,), "float64", "gpu:0")), ValueError,
        "must be on the CPU, not on gpu:0"),
    # ------------------------------------------------------------ taps
    "taps_of_a_list": (lambda h, x: scan(same, dy2st.taps([h]), x), TypeError,
                       "taps: initial is of type list, not a tensor"),
    "taps_of_floats": (lambda h, x: scan(same, dy2st.taps(x, (-1.0,)), x), TypeError,
                       "steps must be a tuple of ints"),
    "taps_that_are_a_number": (lambda h, x: scan(same, dy2st.taps(x, -1), x), TypeError,
                               "steps must be a tuple of ints"),
    "taps_into_the_future": (lambda h, x: scan(same, dy2st.taps(x, (-1, 0)), x), ValueError,
                             "different negative ints"),
    "taps_twice": (lambda h, x: scan(same, dy2st.taps(x, (-1, -1)), x), ValueError,
                   "different negative ints"),
    "no_taps": (lambda h, x: scan(same, dy2st.taps(x, ()), x), ValueError, "different negative"),
    "taps_of_too_few_steps": (lambda h, x: scan(same, dy2st.taps(x[:2], (-3,)), x), ValueError,
                              r"must have the 3 steps that \(-3,\) reads"),
    "taps_of_a_scalar": (lambda h, x: scan(same, dy2st.taps(x.sum()), x), ValueError,
                         "must have the 1 steps"),
    "window_for_a_step": (lambda h, x: scan(lambda s, q: (s, q), dy2st.taps(h[:2], (-2, -1)), x),
                          TypeError, "is a tuple of 2, not a tensor"),
    # ------------------------------------------------------------ while_loop
    "condition_of_several": (lambda h, x: loop(lambda c: c > 0, lambda c: c, h), ValueError,
                             r"the result of cond must have one element, it is bool\[3\]"),
    "condition_that_is_text": (lambda h, x: loop(lambda c: "yes", lambda c: c, h), TypeError,
                               "must be a bool or a tensor, it is of type str"),
    "condition_of_two_arguments": (lambda h, x: loop(lambda a, b: a.sum() > 0, lambda c: c, h),
                                   TypeError, "cond is called with 1 positional argument: missing"),
    "while_body_of_no_arguments": (lambda h, x: loop(lambda c: c.sum() > 0, lambda: h, h),
                                   TypeError, "body is called with 1 positional argument"),
    "while_carry_changes": (lambda h, x: loop(lambda c: c.sum() < 99, lambda c: c[:2], h * 0),
                            TypeError, r"while_loop: the carry changes its type: init is float64"),
    "while_init_is_text": (lambda h, x: loop(lambda c: True, lambda c: c, "h"), TypeError,
                           "while_loop: init is of type str"),
    # ------------------------------------------------------------ cond
    "test_of_several": (lambda h, x: dy2st.cond(h > 0, lambda: h, lambda: h), ValueError,
                        r"cond: test must have one element, it is bool\[3\]"),
    "test_that_is_none": (lambda h, x: dy2st.cond(None, lambda: h, lambda: h), TypeError,
                          "cond: test must be a bool or a tensor"),
    "branch_that_is_none": (lambda h, x: dy2st.cond(h.sum() > 0, None, lambda: h), TypeError,
                            "cond: then must be callable"),
    "branch_without_the_operand": (lambda h, x: dy2st.cond(h.sum() > 0, lambda q: q, lambda: h, h),
                                   TypeError, "cond: orelse is called with 1 positional argument"),
    "branch_that_returns_text": (lambda h, x: dy2st.cond(h.sum() > -99, lambda: "a", lambda: h),
                                 TypeError, "the result of then is of type str"),
    # ------------------------------------------------------------ flex_scan
    "no_sequences": (lambda h, x: flex(core, 0, 1, 1, h), ValueError,
                     "num_inputs must be 1 or more: sequences give the steps"),
    "too_few_tensors": (lambda h, x: flex(core, 1, 1, 1, x), ValueError,
                        "1 sequence and 1 state are needed, 1 tensor is given"),
    "no_tensors": (lambda h, x: flex(core, 2, 1, 1), ValueError,
                   "2 sequences and 1 state are needed, 0 tensors are given"),
    "count_that_is_a_float": (lambda h, x: flex(core, 1.0, 1, 1, x, h), TypeError,
                              "num_inputs must be an int"),
    "negative_count": (lambda h, x: flex(core, 1, -1, 1, x, h), ValueError,
                       "num_states must be 0 or more"),
    "state_that_is_a_number": (lambda h, x: flex(core, 1, 1, 1, x, 0.0), TypeError,
                               "tensor 1 is of type float, not a tensor"),
    "capture_that_is_a_number": (lambda h, x: flex(lambda q, v, w: (q, v), 1, 1, 1, x, h, 3.0),
                                 TypeError, "tensor 2 is of type float, not a tensor"),
    "flex_lengths": (lambda h, x: flex(lambda a, b, v: (a, v), 2, 1, 1, x, x[:3], h), ValueError,
                     r"sequences\[1\] has 3 steps, sequences\[0\] has 6"),
    "too_few_results": (lambda h, x: flex(lambda q, v: q, 1, 1, 1, x, h), ValueError,
                        "the core returns 1 value, not 1 output and 1 state"),
    "core_of_one_argument": (lambda h, x: flex(lambda q: q, 1, 1, 1, x, h), TypeError,
                             "core is called with 2 positional arguments: too many"),
    "state_that_changes": (lambda h, x: flex(lambda q, v: (q, v.sum()), 1, 1, 1, x, h), TypeError,
                           r"states\[0\] is float64\[3\], and the body returns float64\[\]"),
    "flex_keyword": (lambda h, x: flex(core, 1, 1, 1, x, h, final=True), TypeError,
                     "unexpected keyword argument 'final'"),
    "template_missing": (lambda h, x: flex(core, 1, 1, 1, x, h, output_templates=[]), ValueError,
                         "output_templates has 0 templates for 1 output"),
    "templates_that_are_a_number": (lambda h, x: flex(core, 1, 1, 1, x, h, output_templates=3),
                                    TypeError, "output_templates must be a list"),
}  # fmt: skip


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("how", ["eager", "translated"])
@pytest.mark.parametrize("name", ERRORS)
def test_error(name, how):
    f, kind, text = ERRORS[name]
    run = f if how == "eager" else dy2st.to_static(f)
    h, x = data(3, trained=False), data(6, 3, trained=False)
    kept = h.clone(), x.clone()
    with pytest.raises(kind, match=text):
        run(h, x)
    assert all(bool((a == b).all()) for a, b in zip((h, x), kept))


@pytest.mark.parametrize("name", ["carry_of_another_shape", "three_results", "one_result"])
def test_errors_over_a_named_size(name):
    f, kind, text = ERRORS[name]
    spec = [paddle.static.InputSpec([3], "float64"), paddle.static.InputSpec([None, 3], "float64")]
    with pytest.raises(kind, match=text):
        dy2st.to_static(f, input_spec=spec)(data(3, trained=False), data(6, 3, trained=False))


def test_a_translated_error_names_the_line():
    def f(h, x):
        return scan(lambda c, q: (c[:2], q), h, x)  # this line

    with pytest.raises(dy2st.SourceError) as caught:
        dy2st.to_static(f)(data(3), data(6, 3))
    assert "# this line" in str(caught.value)


def test_branches_of_different_types_when_both_are_traced():
    @dy2st.to_static
    def f(h):
        return dy2st.cond(h.sum() > 0, lambda: h[:2], lambda: h)

    with pytest.raises(TypeError, match=r"the results of then and orelse differ: the result is"):
        f(data(3))


def test_branches_of_different_structures_when_both_are_traced():
    @dy2st.to_static
    def f(h):
        return dy2st.cond(h.sum() > 0, lambda: {"a": h}, lambda: {"b": h})

    with pytest.raises(TypeError, match="the keys 'b', not a dict with the keys 'a'"):
        f(data(3))
