"""Files.

`dy2st.load` takes nothing in a file for granted: a file that has been damaged, or that another
program has written, is a `FileError`. `save` writes a small program;
`changed` replaces a text in one of the members of the file.
"""

import random
import zipfile
from pathlib import Path

import numpy as np
import paddle

import dy2st
from tests.docs.errors import script

NAMED = [paddle.static.InputSpec([None, 4], "float32", "x")]
FIXED = [paddle.static.InputSpec([2, 4], "float32", "x")]


def double(x):
    return x * 2


def save(function, spec=NAMED, path="saved.dy2st"):
    dy2st.save(function, path, input_spec=spec)
    return path


class Scaled(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", paddle.zeros([2]))

    def forward(self, x):
        self.calls += 1
        return x * self.calls.sum()


def rows_and_sizes(x):
    rows = []
    for t in range(x.shape[0]):
        rows.append(x[t] * 2)
    return rows, {"steps": x.shape[0], "first": x[0], "sum": float(x.sum())}


def changed(path, member, old, new, compress=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path) as z:
        parts = {name: z.read(name) for name in z.namelist()}
    assert old.encode() in parts[member], parts[member]
    parts[member] = parts[member].replace(old.encode(), new.encode())
    with zipfile.ZipFile(path, "w", compress) as z:
        for name, text in parts.items():
            z.writestr(name, text)
    return path


def turned(x):
    return x * 1j


@script
def complex_entry_that_is_none():
    dy2st.load(changed(save(turned), "manifest.json", '"inputs": []', '"input": []'))


@script
def complex_entry_that_is_no_list():
    dy2st.load(changed(save(turned), "manifest.json", '"inputs": []', '"inputs": 0'))


@script
def complex_entry_of_an_output_that_is_missing():
    dy2st.load(changed(save(turned), "manifest.json", '"outputs": [\n   0', '"outputs": [\n   7'))


@script
def complex_entry_of_an_input_without_pairs():
    dy2st.load(changed(save(turned), "manifest.json", '"inputs": []', '"inputs": [0]'))


@script
def file_that_is_no_program():
    Path("notes.dy2st").write_text("not a program")
    dy2st.load("notes.dy2st")


@script
def archive_of_other_files():
    with zipfile.ZipFile("notes.dy2st", "w") as z:
        z.writestr("notes.txt", "not a program")
    dy2st.load("notes.dy2st")


@script
def compressed_file():
    dy2st.load(changed(save(double), "manifest.json", "out", "out", zipfile.ZIP_DEFLATED))


@script
def file_of_another_kind():
    dy2st.load(changed(save(double), "manifest.json", '"format": "dy2st"', '"format": "onnx"'))


@script
def file_of_another_version():
    dy2st.load(changed(save(double), "manifest.json", '"version": 2', '"version": 1'))


@script
def text_of_no_program():
    dy2st.load(changed(save(double), "program.txt", "scale", "doubled"))


@script
def other_entries_in_the_manifest():
    dy2st.load(changed(save(double), "manifest.json", '"result"', '"results"'))


@script
def result_that_is_no_list():
    dy2st.load(changed(save(double), "manifest.json", "[]\n ]", '"all"\n ]'))


@script
def unknown_kind_of_result():
    dy2st.load(changed(save(double), "manifest.json", '"out"', '"pickle"'))


@script
def result_of_another_number():
    dy2st.load(changed(save(double), "manifest.json", "0,", "7,"))


@script
def output_that_is_no_number():
    dy2st.load(changed(save(rows_and_sizes), "manifest.json", '"number",\n       1', '"number",\n       0'))  # fmt: skip


@script
def size_that_is_no_size():
    dy2st.load(changed(save(rows_and_sizes), "manifest.json", '"x_0"', '"1.5"'))


@script
def size_that_no_input_has():
    dy2st.load(changed(save(rows_and_sizes), "manifest.json", '"x_0"', '"y_0"'))


@script
def size_that_is_no_text():
    dy2st.load(changed(save(rows_and_sizes), "manifest.json", '"x_0"', "3"))


@script
def rows_outside_of_a_list():
    dy2st.load(changed(save(double), "manifest.json", '"out",\n  0,\n  []', '"rows",\n  0,\n  false'))  # fmt: skip


@script
def rows_of_a_number():
    dy2st.load(changed(save(rows_and_sizes), "manifest.json", '"rows",\n     0,', '"rows",\n     1,'))  # fmt: skip


@script
def list_without_rows():
    rows = '"rows",\n     0,\n     false'
    dy2st.load(changed(save(rows_and_sizes), "manifest.json", rows, '"constant", "1"'))


@script
def view_of_a_negative_size():
    flat = save(lambda x: x.reshape([-1]))
    dy2st.load(changed(flat, "manifest.json", "[-1]", "[-3]"))


@script
def view_behind_the_end():
    shifted = save(lambda x: x[1:])
    run = dy2st.load(changed(shifted, "manifest.json", "x_0-1", "x_0"))
    run(np.ones([2, 4], "float32"))


@script
def unknown_view_of_a_result():
    dy2st.load(changed(save(rows_and_sizes), "manifest.json", '"index",\n', '"as_strided",\n'))


@script
def weight_that_is_not_there():
    dy2st.load(changed(save(Scaled()), "weights.safetensors", '"1"', '"2"'))


@script
def weight_of_another_type():
    path = changed(save(Scaled()), "program.txt", "%calls: f32[2] buffer", "%calls: f32[3] buffer")
    path = changed(path, "program.txt", "1.0)                   : f32[2]", "1.0) : f32[3]")
    dy2st.load(path)


@script
def store_to_an_argument():
    dy2st.load(changed(save(Scaled()), "manifest.json", "[\n   1,", "[\n   0,"))


@script
def store_of_another_type():
    output = '"out",\n    1,'
    dy2st.load(changed(save(Scaled()), "manifest.json", output, output.replace("1", "0")))


@script
def two_arguments_of_one_name():
    path = save(lambda x, y: x * y, [*FIXED, paddle.static.InputSpec([2, 4], "float32", "y")])
    dy2st.load(changed(path, "program.txt", 'arg "y"', 'arg "x"'))


@script
def tensor_that_is_too_large():
    large = "99999999999999"
    dy2st.load(changed(save(double, FIXED), "program.txt", "2,4", f"{large},{large}"))


@script
def blocks_that_are_nested_too_deep():
    dy2st.load(changed(save(double), "program.txt", "  return", "  {\n" * 70 + "  return"))


@script
def argument_of_another_type():
    program = dy2st.load(save(double))
    program(np.ones([3, 4]))


@script
def argument_of_another_size():
    program = dy2st.load(save(double))
    program(np.ones([3, 5], np.float32))


def rotates(z):
    z.multiply_(paddle.to_tensor(1j))
    return z.abs()


@script
def written_complex_array_that_is_not_contiguous():
    program = dy2st.load(save(rotates, [paddle.static.InputSpec([2, 4], "complex64")]))
    program(np.ones([4, 2], np.complex64).T)


@script
def too_many_arguments():
    program = dy2st.load(save(double))
    program(np.ones([3, 4], np.float32), 2)


@script
def saves_a_host_call():
    save(lambda x: x * random.random())


@script
def saves_an_op_without_a_native_kernel():
    save(lambda x: paddle.linalg.svd(x)[1], FIXED)


class Halves(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("whole", paddle.zeros([2, 4]))
        self.register_buffer("part", self.whole[0])

    def forward(self, x):
        self.whole.add_(paddle.ones([2, 4]))
        return x + self.part


@script
def saves_buffers_that_share_memory():
    save(Halves(), FIXED)


class Counter(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * 2


@script
def saves_a_counter():
    save(Counter())


class Gate:
    def __init__(self):
        self.threshold = paddle.zeros([])

    def passed(self, x):
        y = x - self.threshold
        self.threshold = 0.5
        return y


@script
def saves_a_number_in_the_place_of_a_tensor():
    save(Gate().passed)


kept = paddle.ones([2])


@script
def saves_a_tensor_from_outside():
    save(lambda x: (x * 2, kept))


@script
def saves_an_argument_that_is_not_read():
    save(lambda x, y: (x * 2, y), [*FIXED, paddle.static.InputSpec([2, 4], "float32", "y")])


@script
def saves_an_object():
    save(lambda x: (x * 2, x.dtype))


history = []


@script
def saves_a_list_from_outside():
    save(lambda x: (x * 2, history))


class Step:
    def __init__(self, h):
        self.h = h


def steps(x):
    found = []
    for row in x:
        found.append(Step(row * 2))
    return found


@script
def saves_a_list_of_objects():
    save(steps)


def states(x):
    found = [x]
    for row in x:
        found.append(row * 2)
    return found


@script
def joined_list_with_a_tuple():
    dy2st.load(changed(save(states), "manifest.json", '"list"', '"tuple"'))


def named(x):
    return {"mean": x.mean(), "rows": x}


@script
def dict_with_a_key_twice():
    dy2st.load(changed(save(named), "manifest.json", "rows", "mean"))
