"""Checkpoints for Python programs.

    import cairn, numpy as np

    u = np.zeros((1000, 1000))
    with cairn.open("ckpt", every=600) as run:
        run.protect("u", u)
        run.state.step = 0
        run.restore()                      # False on a first start
        while run.state.step < 100_000:
            run.point()                    # saves when a checkpoint is due
            relax(u)
            run.state.step += 1
        run.finish()

Arrays keep their memory: restore() writes into them. ``run.state`` holds small
values, which are stored as JSON. Nothing is pickled.
"""

from ._run import (
    CairnError,
    Corrupt,
    Finished,
    InUse,
    Mismatch,
    NotSaved,
    Run,
    State,
    Stopped,
    Stored,
    open,
)

__all__ = ["CairnError", "Corrupt", "Finished", "InUse", "Mismatch", "NotSaved", "Run", "State", "Stopped", "Stored", "open"]
__version__ = "0.1.0"
