"""Saves a tensor on the GPU with PyTorch: torch.save, and the distributed
checkpoint, also its asynchronous form. Prints what gpu (the program beside
this) shows. The first save of each form allocates memory and does not count, as
in the measurements of Cairn. Arguments: directory, rounds, sizes in GiB."""

import os
import shutil
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def peak():
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024


def timed(f):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    f()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def kept_staging():
    """Returns a stager that allocates its memory once, if there is one."""
    try:
        from torch.distributed.checkpoint.staging import BlockingAsyncStager

        return BlockingAsyncStager(cache_staged_state_dict=True)
    except (ImportError, TypeError):
        return None


def main():
    directory, rounds, sizes = sys.argv[1], int(sys.argv[2]), [float(s) for s in sys.argv[3].split(",")]
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    dist.init_process_group("cpu:gloo,cuda:nccl" if dist.is_nccl_available() else "gloo", rank=0, world_size=1)
    for size in sizes:
        n = int(size * (1 << 30)) // 4
        x = torch.arange(n, dtype=torch.int32, device="cuda").mul_(-1640531535)
        y = torch.empty_like(x)
        copies = [timed(lambda: y.copy_(x)) for _ in range(rounds + 1)][1:]
        copy = statistics.median(copies)
        del y
        print(f"  {size:g} GiB: copy on the device {copy * 1e3:.3f} ms")
        path = os.path.join(directory, "torch")

        def show(what, pause, done=None):
            more = "" if done is None else f", done after {done:.2f} s"
            print(f"  {size:g} GiB: {what}: pause {pause * 1e3:.1f} ms = {pause / copy:.0f} × the copy{more}; host memory at its peak {peak()} MiB", flush=True)

        def clean():
            shutil.rmtree(path, ignore_errors=True)
            if os.path.exists(path):
                os.remove(path)

        pause = []
        for _ in range(rounds + 1):
            pause.append(timed(lambda: torch.save({"x": x}, path)))
            clean()
        show("torch.save", statistics.median(pause[1:]), statistics.median(pause[1:]))

        pause = []
        for _ in range(rounds + 1):
            pause.append(timed(lambda: dcp.save({"x": x}, checkpoint_id=path)))
            clean()
        show("distributed checkpoint", statistics.median(pause[1:]), statistics.median(pause[1:]))

        for what, stager in (("async", None), ("async, staging memory kept", kept_staging())):
            if what != "async" and stager is None:
                print(f"  {size:g} GiB: distributed checkpoint, {what}: not in this PyTorch")
                continue
            pause, done = [], []
            for _ in range(rounds + 1):
                begin = time.perf_counter()
                future = None

                def start():
                    nonlocal future
                    future = dcp.async_save({"x": x}, checkpoint_id=path, async_stager=stager)

                pause.append(timed(start))
                future.result()
                done.append(time.perf_counter() - begin)
                clean()
            show("distributed checkpoint, " + what, statistics.median(pause[1:]), statistics.median(done[1:]))
        del x
        torch.cuda.empty_cache()
    dist.destroy_process_group()


main()
