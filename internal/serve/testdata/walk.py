"""A random walk, for the tests: walk.py DIR STEPS FILE.

KILL_AT=point#N kills it at its Nth point, KILL_AT=committed#N as soon as it has
saved N checkpoints.
"""

import os
import random
import signal
import sys
import time

import cairn
import numpy as np

position = np.zeros((100, 50))
counts = np.arange(7, dtype=np.int32)
numpy_random = np.random.default_rng(5)
python_random = random.Random(3)
steps = int(sys.argv[2])
event, _, count = os.environ.get("KILL_AT", "").partition("#")

with open(sys.argv[3], "a+") as out, cairn.open(sys.argv[1], every_points=3) as run:
    run.protect("position", position)
    run.protect("counts", counts)
    run.protect("numpy", numpy_random)
    run.protect("python", python_random)
    run.protect_file(out)
    run.state.step = 0
    run.state.names = ["start"]
    print("restored at" if run.restore() else "started at", run.state.step, file=sys.stderr, flush=True)
    points, first = 0, run.last
    while run.state.step < steps:
        points += 1
        if event == "point" and points == int(count):
            os.kill(os.getpid(), signal.SIGKILL)
        run.point()
        while "KILL_WAIT" in os.environ and points > 3 and run.last == first:
            time.sleep(0.001)
        if event == "committed" and run.last >= first + int(count):
            os.kill(os.getpid(), signal.SIGKILL)
        position += numpy_random.random(position.shape) * python_random.random()
        counts += 1
        run.state.step += 1
        if run.state.step % 10 == 0:
            run.state.names.append(str(run.state.step))
            print(run.state.step, file=out)
    result = position.sum(), counts, run.state.names[-1], len(run.state.names)
    print(*result, python_random.random(), numpy_random.random(), flush=True)
    out.flush()
    run.finish()
