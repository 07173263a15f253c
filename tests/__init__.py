import os

if "PYTEST_XDIST_WORKER" in os.environ:  # each processor has a worker; nothing is imported yet
    os.environ.setdefault("OMP_NUM_THREADS", "1")
