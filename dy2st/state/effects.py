"""The table of effects of calls of code that is not converted.

The keys are dotted names: of modules, classes, functions and methods. The longest name that fits a
function decides, so a module has one line and its exceptions have lines of their own. Functions of
Paddle are recorded by `dy2st.capture`; only those that read or change the state of the process
stand here. What the table does not know is refused. Functions in Python outside of the libraries
are converted, and need no entry; `dy2st.pure` and `dy2st.host` classify whatever else there is.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
import typing
from collections.abc import Iterator

import numpy as np

from dy2st.convert.marks import Mark, is_ignored, mark_of


class Effect(enum.Enum):
    """PURE: the result follows from the arguments. GUARDED: it follows from state that a call can
    check cheaply. HOST: the call acts, or gives another result each time, so the program makes it
    again. REFUSED: it cannot be part of a program."""

    PURE = "pure"
    GUARDED = "guarded"
    HOST = "host"
    REFUSED = "refused"


def _rows(effect: Effect, names: str, below: str = "") -> dict[str, Effect]:
    return {f"{below}{'.' if below else ''}{name}": effect for name in names.split()}


TABLE: dict[str, Effect] = {
    # ------------------------------------------------------------ pure modules
    **_rows(
        Effect.PURE,
        "abc argparse.Namespace array ast base64 binascii bisect builtins calendar cmath "
        "collections colorsys contextlib copy dataclasses datetime decimal difflib enum "
        "fractions functools graphlib hashlib heapq hmac html inspect ipaddress itertools json "
        "keyword math numbers numpy operator pathlib.PurePath pprint re reprlib scipy.special "
        "statistics string struct textwrap types typing unicodedata urllib.parse weakref zlib "
        "zoneinfo uuid.UUID uuid.uuid3 uuid.uuid5",
    ),
    **_rows(
        Effect.PURE,
        "path.abspath path.basename path.commonpath path.commonprefix path.dirname path.isabs "
        "path.join path.normcase path.normpath path.relpath path.split path.splitdrive "
        "path.splitext fspath fsencode fsdecode strerror PathLike",
        "os",
    ),
    **_rows(Effect.PURE, "exc_info intern getsizeof exception getrefcount", "sys"),
    **_rows(Effect.PURE, "catch_warnings", "warnings"),
    # ------------------------------------------------------------ state that is cheap to check
    **_rows(
        Effect.GUARDED,
        "getcwd getcwdb getenv getenvb cpu_count getpid getppid getlogin getuid getgid uname "
        "get_terminal_size sched_getaffinity getpgrp path.exists "
        "path.isfile path.isdir path.islink path.getsize path.getmtime path.expanduser "
        "path.expandvars path.realpath _Environ",
        "os",
    ),
    **_rows(Effect.GUARDED, "Path.exists Path.is_file Path.is_dir Path.cwd Path.home", "pathlib"),
    **_rows(
        Effect.GUARDED,
        "getrecursionlimit getswitchinterval gettrace getprofile getdefaultencoding "
        "getfilesystemencoding is_finalizing",
        "sys",
    ),
    **_rows(Effect.GUARDED, "builtins.dir gc.isenabled gc.get_threshold logging.getLogger"),
    **_rows(Effect.GUARDED, "functools.singledispatch.<locals>.dispatch"),
    **_rows(Effect.GUARDED, "isEnabledFor getEffectiveLevel hasHandlers", "logging.Logger"),
    **_rows(Effect.GUARDED, "getlocale localeconv getpreferredencoding", "locale"),
    **_rows(Effect.GUARDED, "platform decimal.getcontext contextvars.ContextVar.get"),
    **_rows(Effect.GUARDED, "geterr getbufsize get_printoptions", "numpy"),
    **_rows(Effect.GUARDED, "threading.get_ident threading.current_thread threading.main_thread"),
    **_rows(Effect.GUARDED, "get_flags get_device device.get_device framework.get_flags", "paddle"),
    **_rows(Effect.GUARDED, "paddle.base.framework.get_flags"),
    # ------------------------------------------------------------ made again on every call
    **_rows(Effect.HOST, "random numpy.random secrets time uuid os.urandom os.times os.getloadavg"),
    **_rows(Effect.HOST, "datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today"),
    **_rows(Effect.HOST, "datetime.date.today logging.Logger.log builtins.next"),
    **_rows(Effect.HOST, "debug info warning warn error critical exception log", "logging"),
    **_rows(Effect.HOST, "debug info warning warn error critical exception", "logging.Logger"),
    **_rows(Effect.HOST, "warnings.warn warnings.warn_explicit gc.collect gc.get_count"),
    **_rows(Effect.HOST, "traceback.print_exc traceback.print_stack tracemalloc"),
}

UNKNOWN = (
    "Nothing is known about it: its result might be another one when the program runs.",
    "Say what it does: `dy2st.pure(f)` if its result follows from its arguments, "
    "`dy2st.host(f, result=float)` if the program has to call it again on every call; or call it "
    "outside of the translated function, and pass the result in.",
)
#: names that are refused, with the reason; those below them are, too
REASONS: dict[str, str] = {
    "builtins.open": "A file would be opened when the function is traced, not by the program.",
    "builtins.input": "It would wait for input when the function is traced, not in the program.",
    "builtins.exec": "Text that is executed is not translated.",
    "builtins.eval": "Text that is evaluated is not translated.",
    "builtins.compile": "Text that is compiled is not translated.",
    "builtins.breakpoint": "The debugger would stop when the function is traced.",
    "builtins.globals": "The variables of a module that it gives are not followed.",
    "builtins.object.__setattr__": "The attribute would be set when the function is traced.",
    "builtins.object.__delattr__": "The attribute would be deleted when the function is traced.",
    "builtins.__import__": "The module would be imported when the function is traced.",
    "io": "Files are read and written when the function is traced, not by the program.",
    "shelve": "Files are read and written when the function is traced, not by the program.",
    **dict.fromkeys(
        ("pickle.dumps", "pickle.loads"),
        "Its result depends on all that the objects hold, which a program does not follow; "
        "`copy.deepcopy(x)` copies an object.",
    ),
    "pickle": "Files are read and written when the function is traced, not by the program.",
    "tempfile": "Files are made when the function is traced, not by the program.",
    "shutil": "Files are changed when the function is traced, not by the program.",
    "pathlib.Path": "Files are read and written when the function is traced, not by the program.",
    "json.load": "The file would be read when the function is traced, not by the program.",
    "json.dump": "The file would be written when the function is traced, not by the program.",
    "pprint.pprint": "It would print when the function is traced, not when the program runs.",
    "pprint.pp": "It would print when the function is traced, not when the program runs.",
    "os": "It acts on the process or on files when the function is traced, not in the program.",
    "os._Environ.pop": "The environment would change when the function is traced.",
    "os._Environ.popitem": "The environment would change when the function is traced.",
    "os._Environ.clear": "The environment would change when the function is traced.",
    "os._Environ.update": "The environment would change when the function is traced.",
    "os._Environ.setdefault": "The environment would change when the function is traced.",
    "sys.exit": "It would end the process when the function is traced.",
    "sys.setrecursionlimit": "It would act when the function is traced, not in the program.",
    "subprocess": "A process would be started when the function is traced, not by the program.",
    "multiprocessing": "A process would be started when the function is traced.",
    "socket": "The network would be used when the function is traced, not by the program.",
    "urllib.request": "The network would be used when the function is traced.",
    "threading": "Threads and locks would act when the function is traced, not in the program.",
    "concurrent": "Threads would be started when the function is traced, not by the program.",
    "asyncio": "Asynchronous code is not translated.",
    "signal": "It would act when the function is traced, not when the program runs.",
    "atexit": "It would act when the function is traced, not when the program runs.",
    "warnings": "The filters of warnings would change when the function is traced.",
    "logging": "The settings of logging would change when the function is traced.",
    "inspect.stack": "The frames of a translated function are not those of eager.",
    "inspect.currentframe": "The frames of a translated function are not those of eager.",
    "inspect.trace": "The frames of a translated function are not those of eager.",
    "sys._getframe": "The frames of a translated function are not those of eager.",
    "contextlib.ExitStack": "What it enters would act when the function is traced.",
    "contextlib.closing": "`close()` would be called when the function is traced.",
    "contextlib.redirect_stdout": "The program prints when it runs, not when it is traced.",
    "contextlib.redirect_stderr": "The program prints when it runs, not when it is traced.",
    "contextlib.chdir": "The folder would change when the function is traced.",
    "functools.singledispatch.<locals>.register": "It would act when the function is traced.",
    "functools._lru_cache_wrapper.cache_clear": "It would act when the function is traced.",
    "functools._lru_cache_wrapper.cache_info": "It counts calls, which a program does not make.",
    "queue": "A look at its elements takes them out; a `collections.deque` is followed.",
    "weakref.WeakValueDictionary": "What it holds may go away between two calls.",
    "weakref.WeakKeyDictionary": "What it holds may go away between two calls.",
    "weakref.WeakSet": "What it holds may go away between two calls.",
    "weakref.finalize": "It would act when the function is traced, not when the program runs.",
    "decimal.setcontext": "The settings of decimal would change when the function is traced.",
    "decimal.localcontext": "The settings of decimal would change when the function is traced.",
    "numpy.set_printoptions": "It would act when the function is traced, not in the program.",
    "numpy.seterr": "It would act when the function is traced, not when the program runs.",
    "numpy.seterrcall": "It would act when the function is traced, not when the program runs.",
    "numpy.setbufsize": "It would act when the function is traced, not when the program runs.",
    "numpy.load": "The file would be read when the function is traced, not by the program.",
    "numpy.loadtxt": "The file would be read when the function is traced, not by the program.",
    "numpy.genfromtxt": "The file would be read when the function is traced.",
    "numpy.fromfile": "The file would be read when the function is traced, not by the program.",
    "numpy.fromregex": "The file would be read when the function is traced, not by the program.",
    "numpy.memmap": "The file would be read when the function is traced, not by the program.",
    "numpy.save": "The file would be written when the function is traced, not by the program.",
    "numpy.savez": "The file would be written when the function is traced.",
    "numpy.savez_compressed": "The file would be written when the function is traced.",
    "numpy.savetxt": "The file would be written when the function is traced.",
    "numpy.ndarray.tofile": "The file would be written when the function is traced.",
    "numpy.ndarray.dump": "The file would be written when the function is traced.",
    "numpy.vectorize.__call__": "The function in it is called by NumPy and is not translated.",
    "paddle.set_flags": "It would act when the function is traced, not when the program runs.",
    "paddle.base.framework.set_flags": "It would act when the function is traced.",
    **dict.fromkeys(
        "paddle.tensor.math.gcd_ paddle.tensor.math.lcm_ "
        "paddle.nn.functional.input.embedding_renorm_".split(),
        "It writes to its argument in steps of Python that depend on values.",
    ),
    "paddle.Tensor": "A program does not know the tensor; `paddle.to_tensor(x)` makes one in it.",
    "paddle.framework.io.save": "The file would be written when the function is traced.",
    "paddle.framework.io.load": "The file would be read when the function is traced.",
    "paddle.framework.random.set_rng_state": "It would act when the function is traced.",
    "paddle.set_printoptions": "It would act when the function is traced, not in the program.",
    "paddle.tensor.to_string.set_printoptions": "It would act when the function is traced.",
    "paddle.device.set_device": "It would act when the function is traced, not in the program.",
}  # fmt: skip

#: modules whose functions move tensors and numbers of the program, or use them as Python does
GENERIC = frozenset(
    "abc bisect builtins collections contextlib copy dataclasses enum functools heapq inspect "
    "itertools operator types typing weakref".split()
)
#: functions of those that need the characters or digits of a value
PLAIN = frozenset(
    "builtins.ascii builtins.bytes builtins.chr builtins.ord builtins.hex builtins.oct "
    "builtins.bin builtins.hash builtins.complex builtins.int builtins.float builtins.str".split()
)
#: functions that take objects and functions as what they are, and read nothing of them
OPAQUE = frozenset(
    "abc contextlib enum inspect types typing weakref "
    "builtins.isinstance builtins.issubclass builtins.callable builtins.id builtins.type "
    "builtins.object builtins.vars builtins.super builtins.property builtins.staticmethod "
    "builtins.classmethod "
    "builtins.BaseException builtins.tuple builtins.list builtins.zip builtins.enumerate "
    "functools.partial functools.wraps functools.update_wrapper functools.partialmethod "
    "operator.is_ operator.is_not".split()
)
#: the argument that a function writes
WRITES: dict[str, int] = {
    **dict.fromkeys(
        "numpy.copyto numpy.put numpy.place numpy.putmask numpy.fill_diagonal "
        "numpy.put_along_axis numpy.ufunc.at heapq.heappush heapq.heappop heapq.heapify "
        "heapq.heapreplace heapq.heappushpop bisect.insort bisect.insort_left bisect.insort_right "
        "operator.setitem operator.delitem operator.iadd operator.imul operator.ior operator.iand "
        "operator.isub operator.ixor operator.iconcat struct.pack_into".split(),
        0,
    ),
    **{
        f"numpy.ndarray.{name}": -1
        for name in "sort fill put partition resize setfield setflags byteswap".split()
    },
}

#: classes of libraries whose objects do not change
IMMUTABLE = frozenset(
    "re.Pattern re.Match datetime zoneinfo fractions.Fraction decimal.Decimal numbers "
    "pathlib.PurePath uuid.UUID struct.Struct ipaddress statistics.NormalDist inspect types "
    "builtins string.Formatter numpy.ufunc numpy.dtype numpy.generic numpy.ndarray operator "
    "functools itertools typing enum abc dataclasses contextlib logging threading platform copy "
    "weakref json warnings collections array".split()
)

#: packages whose functions are recorded by what they call
RECORDED = frozenset(("paddle", "dy2st", "ir", "executor"))
_HOMES = {"posix": "os", "nt": "os", "posixpath": "os.path", "ntpath": "os.path"}
_HOMES.update({"genericpath": "os.path", "_pydecimal": "decimal", "_thread": "threading"})
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodWrapperType)
_DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip


def effect_of(f: object) -> Effect:
    """The effect of a call of `f`: a function, a method, a class, an object that can be called.

    A mark of the user decides before the table. For a function of Paddle that the table does not
    name it is PURE: it is recorded. What nobody knows is REFUSED.
    """
    mark = mark_of(f)
    if mark is not None:
        return Effect.HOST if mark.host else Effect.PURE
    if isinstance(f, functools.partial):
        return effect_of(f.func)
    found = _found(f)
    if isinstance(found, Effect):
        return found
    return Effect.PURE if found is None and is_recorded(f) else Effect.REFUSED


def is_recorded(f: object) -> bool:
    """Whether `f` belongs to Paddle, or to a module that the user has said to leave alone."""
    return home(f) in RECORDED or is_ignored(getattr(f, "__module__", None))


def refusal_of(f: object) -> tuple[str, str]:
    """Return the reason why a call of `f` is refused, and the remedy."""
    found = _found(f)
    if isinstance(found, str) and is_in(f, frozenset(("queue",))):
        return found, "Put the elements into a deque, or pass one of them as an argument."
    if isinstance(found, str):
        return found, "Call it outside of the translated function, and pass the result in."
    return UNKNOWN


def is_in(f: object, group: frozenset[str]) -> bool:
    """Whether a name of `f`, or of what is around it, belongs to a group."""
    return any(part in group for name in names(f) for part in _prefixes(name))


def written(f: object) -> int | None:
    """Return the argument that `f` writes; -1 is the object that it is a method of."""
    return next((WRITES[name] for name in names(f) if name in WRITES), None)


#: libraries whose functions are shown with their modules
NAMED = frozenset(sys.stdlib_module_names) - {"__main__"} | {"paddle", "numpy"}


def name_of(f: object) -> str:
    """The user's name for a function, with the module of a library."""
    module = getattr(f, "__module__", None)
    if isinstance(module, str) and module.split(".")[0] not in NAMED:
        return str(getattr(f, "__name__", type(f).__name__))
    if isinstance(f, np.ufunc) and _package_of(f) == "ufunc":
        return f"numpy.frompyfunc({f.__name__.removesuffix(' (vectorized)')})"
    public = (q for q in names(f) if not q.startswith("dy2st."))
    name = next(public, getattr(f, "__name__", type(f).__name__)).removeprefix("builtins.")
    return "open" if f is open else name


def home(f: object) -> str:
    """The package that defines `f`."""
    found = list(names(f))
    return found[0 if isinstance(f, type) else -1].split(".")[0]


def _found(f: object) -> Effect | str | None:
    for name in names(f):
        for part in _prefixes(name):
            found = REASONS.get(part) or TABLE.get(part)
            if found is not None:
                return found
    return None


def _prefixes(name: str) -> Iterator[str]:
    """`a.b.c`, `a.b`, `a`; of Paddle the whole name only."""
    yield name
    while "." in name and not name.startswith("paddle."):
        name = name.rpartition(".")[0]
        yield name


# ---------------------------------------------------------------- names
def names(f: object) -> Iterator[str]:
    """The dotted names of `f`: for a method one name for each class from that of its object up to
    the base class that defines it."""
    owner = getattr(f, "__self__", None)
    if isinstance(owner, types.ModuleType) or owner is None and isinstance(f, _FUNCTIONS):
        yield dotted(f)
    elif owner is not None and hasattr(f, "__name__"):
        yield from _methods(owner if isinstance(owner, type) else type(owner), f.__name__)
        if isinstance(f, types.MethodType) and isinstance(f.__func__, types.FunctionType):
            yield dotted(f.__func__)
    elif isinstance(f, _DESCRIPTORS):
        yield f"{dotted(f.__objclass__)}.{f.__name__}"
    elif isinstance(f, type):
        yield from (dotted(k) for k in f.__mro__ if k is not object or f is object)
    elif isinstance(f, typing.NewType):
        yield "typing.NewType"
    elif isinstance(f, np.ufunc):
        yield f"{_package_of(f)}.{f.__name__}"
    elif hasattr(f, "__qualname__") and getattr(f, "__module__", None):
        yield dotted(f)
    else:
        yield from _methods(type(f), "__call__")


def _package_of(f: np.ufunc) -> str:
    """`np.frompyfunc` makes others, of functions of the user."""
    known = [q for q in ("numpy", "scipy.special") if q in sys.modules]
    return next((q for q in known if getattr(sys.modules[q], f.__name__, None) is f), "ufunc")


def _methods(kind: type, name: str) -> Iterator[str]:
    for k in kind.__mro__:
        yield f"{dotted(k)}.{name}"
        if name in vars(k):
            return


def dotted(x: object) -> str:
    """Module and name, with the public name of a module: `_heapq.heappush` is `heapq.heappush`."""
    module = getattr(x, "__module__", None) or ""
    head, _, rest = module.partition(".")
    head = _HOMES.get(head, head.lstrip("_"))
    name = getattr(x, "__qualname__", type(x).__name__)
    return ".".join(q for q in (head, rest, name) if q)


__all__ = [
    "Effect",
    "GENERIC",
    "Mark",
    "OPAQUE",
    "PLAIN",
    "effect_of",
    "is_in",
    "is_recorded",
    "mark_of",
    "name_of",
    "refusal_of",
    "written",
]
