"""Runs a Python program, and kills it at a point, for the tests: killed.py SCRIPT ARGUMENT…

KILL_AT=point#N kills it at its Nth point, KILL_AT=committed#N at a point after its
Nth checkpoint is durable, with KILL_RANK=R only the process of this rank. With
KILL_WAIT=1, points wait until their checkpoint is durable. kill.c does the same
for programs in C.
"""

import os
import runpy
import signal
import sys
import time

import cairn

event, _, count = os.environ.get("KILL_AT", "").partition("#")
rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK"))
if rank not in (None, os.environ.get("KILL_RANK", rank)):
    event = ""
left = int(count or 0)
wait = "KILL_WAIT" in os.environ
last = None
real = cairn.Run.point


def reached(name):
    global left
    if name == event:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def point(run):
    global last
    if last is None:
        last = run.last
    reached("point")
    begun = real(run)
    error = run._lib.cairn_error(run._handle)
    while begun and wait and run.last == last and run._lib.cairn_error(run._handle) == error:
        time.sleep(0.001)
    if run.last > last:
        last = run.last
        reached("committed")
    return begun


cairn.Run.point = point
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
