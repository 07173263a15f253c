"""Small programs for test_convert, run as they are and converted, with each of their arguments."""

CASES = []
LOG = []


def case(*arguments):
    def register(fn):
        CASES.append((fn, arguments))
        return fn

    return register


def log(*what):
    LOG.append(repr(what[0] if len(what) == 1 else what).split(" at 0x")[0])
    return what[0]


class Box:
    def __init__(self, **fields):
        self.__dict__.update(fields)

    def __repr__(self):
        return f"Box({self.__dict__})"

    def __eq__(self, other):
        return isinstance(other, Box) and self.__dict__ == other.__dict__

    __hash__ = None


class Manager:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        log("enter", self.name)
        return self.name

    def __exit__(self, kind, value, trace):
        unbound = kind is not None and issubclass(kind, NameError)
        log("exit", self.name, "NameError" if unbound else kind and kind.__name__)
        return self.swallow
