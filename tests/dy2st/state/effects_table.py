"""Calls of library functions, as expressions over a state `s` that changes between the calls.

`s.f` is a float, `s.i` an int, `s.items` a list, `s.table` a dict, `s.text` a string, `s.a` an
array; `s.rng`, `s.gen` and `s.rs` are generators. Separated by `;`.
"""

PURE = {
    "math": """
        math.acos(1 / s.f); math.acosh(s.f + 1); math.asin(1 / s.f); math.asinh(s.f);
        math.atan(s.f); math.atan2(s.f, 2); math.atanh(0.1 / s.f); math.cbrt(s.f); math.ceil(s.f);
        math.comb(s.i, 2); math.copysign(s.f, -1); math.cos(s.f); math.cosh(s.f); math.degrees(s.f);
        math.dist([s.f, 1], [0, 0]); math.erf(s.f); math.erfc(s.f); math.exp(s.f); math.exp2(s.f);
        math.expm1(s.f); math.fabs(-s.f); math.factorial(s.i); math.floor(s.f); math.fmod(s.f, 1);
        math.frexp(s.f); math.fsum(s.items); math.gamma(s.f); math.gcd(s.i, 12); math.hypot(s.f, 2);
        math.isclose(s.f, 1.5); math.isfinite(s.f); math.isinf(s.f); math.isnan(s.f);
        math.isqrt(s.i); math.lcm(s.i, 12); math.ldexp(s.f, 2); math.lgamma(s.f); math.log(s.f);
        math.log(s.f, 3); math.log10(s.f); math.log1p(s.f); math.log2(s.f); math.modf(s.f);
        math.nextafter(s.f, 9); math.perm(s.i, 2); math.pow(s.f, 2); math.prod(s.items);
        math.radians(s.f); math.remainder(s.f, 2); math.sin(s.f); math.sinh(s.f); math.sqrt(s.f);
        math.sumprod(s.items, s.items); math.tan(s.f); math.tanh(s.f); math.trunc(s.f);
        math.ulp(s.f); math.fma(s.f, 2.0, 1.0)
    """,
    "builtins": """
        abs(-s.f); all(s.items); any(s.items); ascii(s.text); bin(s.i); bool(s.i - 4);
        bytes(s.items); callable(s.items); chr(64 + s.i); complex(s.f, 1); dict(s.table);
        divmod(s.i, 3); list(enumerate(s.items)); list(filter(None, s.items)); float(s.i);
        format(s.f, ".3f"); sorted(frozenset(s.items)); getattr(s, "i"); hasattr(s, "z");
        hash(s.text) % 97; hex(s.i); int(s.f); isinstance(s.f, float); issubclass(type(s.f), int);
        iter(s.items) is None; len(s.items); list(s.items); list(map(abs, s.items)); max(s.items);
        max(s.f, 2); min(s.items); min(s.i, 5); next(iter(s.items)); oct(s.i); ord(s.text[-1]);
        pow(s.i, 2); pow(s.i, 2, 5); list(range(s.i)); repr(s.items); list(reversed(s.items));
        round(s.f); round(s.f, 1); sorted(set(s.items)); slice(s.i).indices(10); sorted(s.items);
        sorted(s.items, reverse=True); str(s.table); sum(s.items); sum(s.items, s.f);
        tuple(s.items); type(s.f).__name__; vars(s)["f"]; list(zip(s.items, s.text));
        memoryview(s.text.encode()).nbytes; dict.fromkeys(s.items, 0); int.from_bytes(b"a", "big");
        float.fromhex("0x1p3"); (s.i).bit_length(); (s.f).is_integer(); (s.f).as_integer_ratio();
        (s.f).hex(); (s.i).to_bytes(2, "big"); (s.i).conjugate(); len(dir(s)); object() is None;
        bytes.fromhex("ff00"); str.lower(s.text); len(str(s.f)); int(str(s.i)); float(str(s.f));
        s.i in s.items; s.text.upper(); s.text.split(); s.text.replace("a", "q"); s.text.title();
        s.text.find("c"); s.text.count("c"); s.text.center(40); s.text.encode(); s.text.zfill(30);
        s.text.partition(" "); s.text.join(["x", "y"]); s.text.startswith("a"); s.text.strip("a");
        "%s-%d" % (s.text, s.i); f"{s.f:.2f} {s.i}"; "{}".format(s.items); s.text.isalpha();
        s.items.index(3); s.items.count(3); s.items.copy(); s.items + [s.i]; s.items[-1];
        s.items[1:]; s.table.get("a"); sorted(s.table.items()); list(s.table.values());
        list(s.table.keys()); s.table["a"]; s.table | {"b": 2}; (*s.items, 1); {**s.table, "c": s.i}
    """,
    "operator": """
        operator.abs(-s.i); operator.add(s.i, 1); operator.and_(s.i, 6);
        operator.concat("a", s.text); operator.contains(s.items, 4); operator.countOf(s.items, 3);
        operator.eq(s.i, 5); operator.floordiv(s.i, 2); operator.ge(s.i, 5);
        operator.getitem(s.items, -1); operator.gt(s.i, 5); operator.index(s.i);
        operator.indexOf(s.items, 3); operator.inv(s.i); operator.invert(s.i);
        operator.is_(s.i, None); operator.is_not(s.i, None); operator.le(s.i, 5);
        operator.length_hint(s.items); operator.lshift(s.i, 2); operator.lt(s.i, 5);
        operator.matmul(s.a, s.a); operator.mod(s.i, 3); operator.mul(s.i, 3); operator.ne(s.i, 5);
        operator.neg(s.i); operator.not_(s.i - 4); operator.or_(s.i, 8); operator.pos(s.i);
        operator.pow(s.i, 2); operator.rshift(s.i, 1); operator.sub(s.i, 1);
        operator.truediv(s.i, 3); operator.truth(s.i - 4); operator.xor(s.i, 3);
        operator.attrgetter("f")(s); operator.attrgetter("f", "i")(s);
        operator.itemgetter(-1)(s.items); operator.itemgetter("a")(s.table);
        operator.methodcaller("upper")(s.text); operator.methodcaller("split", "b")(s.text);
        operator.call(abs, s.i)
    """,
    "itertools": """
        list(itertools.accumulate(s.items)); list(itertools.batched(s.items, 2));
        list(itertools.chain(s.items, s.text)); list(itertools.chain.from_iterable([s.items]));
        list(itertools.combinations(s.items, 2)); list(itertools.compress(s.text, s.items));
        len(list(itertools.combinations_with_replacement(s.items, 2)));
        list(itertools.islice(itertools.count(s.i), 3));
        list(itertools.islice(itertools.cycle(s.items), 9));
        list(itertools.dropwhile(lambda q: q > s.i - 3, s.items));
        list(itertools.filterfalse(lambda q: q > 2, s.items));
        [(k, list(g)) for k, g in itertools.groupby(s.items, lambda q: q > 2)];
        list(itertools.islice(s.items, 1, None)); list(itertools.pairwise(s.items));
        len(list(itertools.permutations(s.items, 2))); list(itertools.product(s.items, [s.i]));
        list(itertools.repeat(s.i, 2)); list(itertools.starmap(pow, [(s.i, 2)]));
        list(itertools.takewhile(lambda q: q < s.i, s.items)); list(itertools.tee(s.items)[1]);
        list(itertools.zip_longest(s.items, s.text))
    """,
    "functools": """
        functools.reduce(operator.add, s.items);
        functools.reduce(lambda a, b: a * s.i + b, s.items); functools.partial(max, s.i)(5);
        functools.partial(math.pow, y=2)(s.i) if False else s.i;
        sorted(s.items, key=functools.cmp_to_key(lambda a, b: (a - b) * s.i)); cached(s.i);
        counted(s.i); dispatched(s.i); wrapped(s.i); s.twice; total(s.i) > total(5)
    """,
    "collections": """
        collections.Counter(s.items).most_common(2); sorted(collections.Counter(s.text).elements());
        collections.Counter(s.items)[7]; list(collections.deque(s.items, maxlen=2));
        collections.OrderedDict(s.table)["a"]; collections.defaultdict(int, s.table)["zz"];
        Pair(s.i, s.f).first; Pair(s.i, s.f)._replace(first=1); Pair(s.i, s.f)._asdict();
        list(Pair._make([s.i, s.f])); collections.ChainMap(dict(s.table), {"q": 1})["a"];
        sorted(collections.Counter(s.items) + collections.Counter([s.i]))
    """,
    "heapq": """
        heapq.nlargest(2, s.items); heapq.nsmallest(2, s.items);
        list(heapq.merge(s.items[:1], [5])); heapq.nlargest(1, s.items, key=lambda q: -q * s.i);
        heaped(s.items); popped(s.items)
    """,
    "bisect": """
        bisect.bisect(sorted(s.items), 4); bisect.bisect_left(sorted(s.items), 7);
        bisect.bisect_right(sorted(s.items), 7); inserted(s.items);
        bisect.bisect([1, 2, 30], s.i, key=lambda q: q * 2)
    """,
    "copy": """
        copy.copy(s.items); copy.deepcopy(s.items); copy.copy(s.table); copy.deepcopy(s.table);
        copy.deepcopy([s.items, s.i]); copy.copy(s.text); copy.copy(s.point).x
    """,
    "re": """
        re.sub("[ab]", "q", s.text); re.subn("c", "q", s.text); re.split(" ", s.text);
        re.findall("c", s.text); [m.start() for m in re.finditer("c", s.text)]; re.escape(s.text);
        re.match("[^b]*", s.text).end(); re.search("c", s.text + "c").span();
        re.fullmatch(".*a.*", s.text)[0]; re.compile("c").findall(s.text);
        s.pattern.sub("-", s.text); s.pattern.split(s.text);
        re.sub("c", lambda m: str(len(s.items)), s.text);
        s.pattern.search(s.text + "c").start(); s.pattern.fullmatch("c").group();
        re.compile(s.text).pattern
    """,
    "json": """
        json.dumps(s.table); json.dumps(s.items, indent=1); json.loads(json.dumps([s.i]));
        json.loads('{"a": 1}', object_hook=lambda d: s.i); json.dumps(s.text);
        json.JSONEncoder().encode(s.items); json.JSONDecoder().decode("[1, 2]")
    """,
    "datetime": """
        s.day.year + s.day.month + s.day.day; s.day.isoformat(); s.day.weekday(); s.day.toordinal();
        s.day.strftime("%Y-%m-%d"); (s.day + datetime.timedelta(days=30)).month;
        s.day.timetuple()[7]; (s.day - datetime.date(2020, 1, 1)).days;
        s.day.replace(year=2000).isoformat(); datetime.date(2020, 1, s.i).isoformat();
        datetime.timedelta(hours=s.i).total_seconds(); datetime.datetime(2020, 1, s.i, 5).hour;
        datetime.date.fromordinal(730000 + s.i).day;
        datetime.datetime.fromisoformat("2020-01-01").year; datetime.time(s.i).isoformat();
        datetime.datetime.combine(s.day, datetime.time(1)).isoformat(); s.day.isocalendar()[1];
        datetime.datetime.strptime("2020", "%Y").year; s.day < datetime.date(2020, 2, 2)
    """,
    "others": """
        statistics.mean(s.items); statistics.median(s.items); statistics.pstdev(s.items);
        statistics.mode(s.items); float(fractions.Fraction(s.i, 7)); str(decimal.Decimal(s.i) / 8);
        string.Template("$a").substitute(a=s.i); textwrap.shorten(s.text, 9);
        string.capwords(s.text); struct.pack("i", s.i); struct.unpack("d", struct.pack("d", s.f));
        zlib.crc32(s.text.encode()); hashlib.md5(s.text.encode()).hexdigest();
        base64.b64encode(s.text.encode()); textwrap.wrap(s.text, 9); uuid.UUID(int=s.i).int;
        os.path.join("a", s.text); os.path.splitext(s.text + ".py")[0];
        os.path.basename("b/" + s.text); os.getcwd() == ""; os.environ.get("DY2ST_SWEEP");
        os.getenv("DY2ST_SWEEP"); os.environ["DY2ST_SWEEP"]; os.path.exists(s.text); os.cpu_count();
        sys.getrecursionlimit(); os.getpid() == 0; "DY2ST_SWEEP" in os.environ;
        inspect.isfunction(s.text); unicodedata.name(s.text[-1]); html.escape(s.text + "<");
        dataclasses.asdict(s.point); dataclasses.replace(s.point, y=1).x;
        len(dataclasses.fields(s.point)); enum_of(s.i).name; cmath.exp(s.f).real;
        colorsys.rgb_to_hsv(s.f, 1, 0); calendar.isleap(2000 + s.i);
        array.array("d", s.items).tolist(); difflib.get_close_matches("ab", [s.text[:3]]);
        ipaddress.ip_address(s.i).packed; keyword.iskeyword(s.text); types.SimpleNamespace(q=s.i).q
    """,
    "numpy": """
        np.abs(-s.a); np.add(s.a, 1); np.all(s.a > 2); np.allclose(s.a, 1); np.amax(s.a);
        np.any(s.a > 6); np.append(s.a, 1); np.arange(s.i); np.argmax(-s.a); np.argmin(s.a);
        np.argsort(-s.a); np.argwhere(s.a > 3); np.around(s.a, 1); np.array(s.items);
        np.array_equal(s.a, [0, 1, 2, 3]); np.array_split(s.a, 2); np.asarray(s.items);
        np.average(s.a, weights=s.a + 1); np.bincount(s.items); np.broadcast_to(s.i, (2,));
        np.ceil(s.a); np.clip(s.a, 1, 3); np.column_stack([s.a, s.a]); np.concatenate([s.a, [s.f]]);
        np.copy(s.a); np.corrcoef(s.a, s.a ** 2); np.cos(s.f); np.count_nonzero(s.a > 4);
        np.cov(s.a); np.cross(s.a[:3], [1, 0, 0]); np.cumprod(s.a); np.cumsum(s.a); np.diag(s.a);
        np.diff(s.a ** 2); np.digitize(s.a, [2, 3]); np.divide(s.a, 2); np.dot(s.a, s.a);
        np.einsum("i,i", s.a, s.a); np.equal(s.a, 3); np.exp(s.a); np.expand_dims(s.a, 0);
        np.eye(s.i)[0]; np.fft.fft(s.a).real; np.flip(s.a); np.float32(s.f); np.float64(s.f);
        np.floor(s.a / 2); np.fmod(s.a, 2); np.full((2,), s.f); np.geomspace(1, s.f, 3);
        np.gradient(s.a ** 2); np.greater(s.a, 3); np.histogram(s.a, 2)[0]; np.hstack([s.a, 1]);
        np.hypot(s.a, 1); np.identity(2) * s.f; np.inner(s.a, s.a); np.insert(s.a, 0, s.f);
        np.int64(s.i); np.interp(s.f, [0, 9], [0, 1]); np.intersect1d(s.a, [3, 4]);
        np.isclose(s.a, 3); np.isfinite(s.a); np.isin(s.a, [3]); np.isnan(s.a);
        np.kron(s.a, [1, 2]); np.less(s.a, 3); np.linalg.det(np.diag(s.a + 1));
        np.linalg.inv(np.diag(s.a + 1)); np.linalg.norm(s.a); np.linalg.solve(np.eye(4), s.a);
        np.linspace(0, s.f, 3); np.log(s.a + 1); np.log1p(s.a); np.logical_and(s.a > 2, s.a < 5);
        np.logspace(0, s.f, 3); np.matmul(s.a, s.a); np.max(s.a); np.maximum(s.a, 3); np.mean(s.a);
        np.median(s.a); np.meshgrid(s.a, [1])[0]; np.min(s.a); np.minimum(s.a, 3); np.mod(s.a, 3);
        np.multiply(s.a, 2); np.nan_to_num(s.a); np.ndim(s.a); np.negative(s.a);
        np.nonzero(s.a > 3)[0]; np.ones(s.i); np.ones_like(s.a); np.outer(s.a, s.a); np.pad(s.a, 1);
        np.percentile(s.a, 30); np.power(s.a, 2); np.prod(s.a + 1); np.ptp(s.a ** 2);
        np.quantile(s.a, 0.3); np.ravel(s.a); np.reciprocal(s.a + 1); np.repeat(s.a, 2);
        np.reshape(s.a, (2, 2)); np.roll(s.a, 1); np.rot90(np.diag(s.a)); np.round(s.a, 1);
        np.searchsorted(s.a, 3); np.select([s.a > 3], [s.a]); np.shape(s.items); np.sign(s.a - 3);
        np.sin(s.a); np.size(s.items); np.sort(-s.a); np.split(s.a, 2); np.sqrt(s.a);
        np.square(s.a); np.squeeze(s.a); np.stack([s.a, s.a]); np.std(s.a ** 2);
        np.subtract(s.a, 1); np.sum(s.a); np.take(s.a, [1]); np.tan(s.a); np.tanh(s.a);
        np.tensordot(s.a, s.a, 1); np.tile(s.a, 2); np.trace(np.diag(s.a)); np.transpose(s.a);
        np.trapz(s.a) if False else 1; np.tri(s.i)[1]; np.tril(np.diag(s.a)); np.triu(np.diag(s.a));
        np.true_divide(s.a, 3); np.union1d(s.a, [1]); np.unique(s.items); np.var(s.a ** 2);
        np.vstack([s.a, s.a]); np.where(s.a > 3, s.a, 0); np.zeros(s.i); np.zeros_like(s.a);
        np.add.reduce(s.a); np.multiply.accumulate(s.a); np.array(s.text); np.poly1d(s.a)(2.0);
        np.polyfit(s.a, s.a, 1); np.apply_along_axis(lambda q: q * s.i, 0, s.a);
        np.fromfunction(lambda i: i * s.i, (3,)); s.a.sum(); s.a.mean(); s.a.max(); s.a.min();
        s.a.tolist(); s.a.copy(); s.a.reshape(2, 2); s.a.astype("int32"); s.a.argmax();
        s.a.cumsum(); s.a.dot(s.a); s.a.item(1); s.a.std(); s.a.clip(1, 3); s.a.round(1);
        s.a.nonzero()[0]; s.a.flatten(); s.a.T; s.a.size; s.a.shape; s.a[0]; s.a[1:]; s.a * 2;
        s.a > 3; -s.a; s.a @ s.a; len(s.a); filled(s.a); sorted_array(s.a)
    """,
}

HOST = {
    "random": """
        random.betavariate(1, 2); random.choice(s.items); random.choices(s.items, k=2)[0];
        random.expovariate(s.f); random.gammavariate(1, 2); random.gauss(0, 1);
        random.getrandbits(8); random.lognormvariate(0, 1); random.normalvariate(0, 1);
        random.paretovariate(2); random.randbytes(2); random.randint(0, 100); random.random();
        random.randrange(100); random.sample(s.items, 2)[0]; random.shuffle(list(s.items));
        random.triangular(0, 1, 0.5); random.uniform(0, s.f); random.vonmisesvariate(0, 1);
        random.weibullvariate(1, 2); random.seed(s.i); random.getstate()[1][0]; s.rng.random();
        s.rng.randint(0, 100); s.rng.gauss(0, 1); s.rng.uniform(0, 1); s.rng.choice(s.items);
        s.rng.sample(s.items, 1)[0]; s.rng.shuffle(list(s.items));
        random.binomialvariate(5, 0.5)
    """,
    "numpy.random": """
        np.random.rand(); np.random.randn(); np.random.randint(0, 100); np.random.random();
        np.random.uniform(0, s.f); np.random.normal(); np.random.choice(s.items);
        np.random.permutation(4)[0]; np.random.exponential(); np.random.beta(1, 2);
        np.random.binomial(10, 0.5); np.random.poisson(3); np.random.gamma(2); np.random.bytes(2);
        np.random.rand(2, 3).sum(); np.random.standard_normal(2)[0]; np.random.laplace();
        np.random.seed(s.i); s.gen.random(); s.gen.normal();
        s.gen.integers(100); s.gen.uniform(0, 1); s.gen.choice(s.items); s.gen.permutation(4)[0];
        s.gen.standard_normal(3).sum(); s.gen.exponential(); s.rs.rand(); s.rs.randn();
        s.rs.randint(100); s.rs.uniform(); s.rs.permutation(4)[0]
    """,
    "others": """
        next(s.counter); next(s.cycle); next(s.listed); list(s.listed); next(s.made);
        secrets.randbelow(1); os.urandom(0); time.sleep(0); queue.Queue().qsize();
        logging.getLogger("dy2st.sweep").info("x"); warnings.warn("x") if False else 0
    """,
}

#: numbers that grow from call to call
CLOCKS = """
    time.time(); time.time_ns(); time.perf_counter(); time.perf_counter_ns(); time.monotonic();
    time.monotonic_ns(); time.process_time(); time.process_time_ns(); time.thread_time();
    datetime.datetime.now().timestamp(); datetime.datetime.utcnow().timestamp();
    time.clock_gettime(0); time.mktime(time.localtime()); os.times().elapsed; uuid.uuid1().time
"""

REFUSED = """
    random.Random(s.i).random(); np.random.default_rng(s.i).random();
    np.random.RandomState(s.i).rand();
    open("f"); input(); eval("s.i"); exec("1"); compile("1", "f", "eval"); os.system("true");
    os.remove("f"); os.mkdir("f"); os.listdir("."); os.chdir("."); os.kill(0, 0); os.fork();
    os.putenv("A", "1"); os.umask(0); json.load(s.text); json.dump(s.text, s.text);
    np.save("f", s.a); np.load("f"); np.savetxt("f", s.a); np.loadtxt("f"); np.fromfile("f");
    np.seterr(all="ignore"); np.set_printoptions(2); s.a.tofile("f"); s.a.sort(); s.a.fill(0);
    np.copyto(s.a, 0); np.add(s.a, 1, out=s.a); np.fill_diagonal(s.a, 0);
    warnings.simplefilter("ignore"); logging.basicConfig(); logging.disable(); inspect.stack();
    inspect.currentframe(); sys.exit(); sys.setrecursionlimit(9); threading.Thread();
    threading.Lock(); subprocess.run("true"); socket.socket(); signal.alarm(0);
    atexit.register(print); np.vectorize(abs)(s.i); breakpoint(); weakref.finalize(s, print);
    decimal.setcontext(decimal.Context()); shutil.rmtree("f"); tempfile.mkdtemp();
    pickle.dumps(s.i); pathlib.Path("f").read_text(); os.environ.pop("A"); os.environ.update({});
    importlib.import_module("os"); __import__("os"); ctypes.c_int(1)
"""


def expressions(text):
    return [" ".join(q.split()) for q in text.split(";") if q.strip()]
