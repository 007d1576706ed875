"""A random walk, for the tests: walk.py DIR STEPS FILE."""

import random
import sys

import cairn
import numpy as np

position = np.zeros((100, 50))
counts = np.arange(7, dtype=np.int32)
numpy_random = np.random.default_rng(5)
python_random = random.Random(3)
steps = int(sys.argv[2])

with open(sys.argv[3], "a+") as out, cairn.open(sys.argv[1], every_points=3) as run:
    run.protect("position", position)
    run.protect("counts", counts)
    run.protect("numpy", numpy_random)
    run.protect("python", python_random)
    run.protect_file(out)
    run.state.step = 0
    run.state.names = ["start"]
    print("restored at" if run.restore() else "started at", run.state.step, file=sys.stderr, flush=True)
    while run.state.step < steps:
        run.point()
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
