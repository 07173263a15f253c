"""How often tests trace the bodies of loops in vain:

    python -m scripts.bench.count_traces tests/parity

For the loops that the tests translate: how many of their traces are thrown away for want of a fact,
how many because the code around is traced again; and the tests with more than two of the former.
The arguments go to pytest.
"""

from __future__ import annotations

import sys
from collections import Counter

import pytest

MOST = 2


class Traces:
    """A plugin of pytest that reads the counts when a trace drops them."""

    def __init__(self) -> None:
        self.test, self.totals = "", Counter[str]()
        self.loops, self.often = Counter[int](), Counter[str]()

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.test = item.nodeid

    def pytest_sessionstart(self) -> None:
        from dy2st.trace.trace_state import LoopFacts

        notes = LoopFacts.notes

        def counted(facts: LoopFacts) -> object:
            for q in facts.traced.values():
                self.loops[q.thrown] += 1
                self.totals.update(traces=q.count, thrown=q.thrown, again=q.again)
                self.often[self.test] += q.thrown > MOST
            return notes(facts)

        LoopFacts.notes = counted

    def pytest_terminal_summary(self) -> None:
        print("\nloops by the number of traces thrown away:", sorted(self.loops.items()))
        print("in all:", dict(self.totals))
        for test, n in self.often.most_common():
            if n:
                print(f"{n} loops with more than {MOST}: {test}")


if __name__ == "__main__":
    sys.exit(pytest.main(["-q", "-n", "0", *sys.argv[1:]], plugins=[Traces()]))
