#!/bin/bash
# Runs ./sim under Slurm until it has finished, however often that is interrupted:
#
#	sbatch slurm.sh
#
# After a lost node, a preemption or the time limit, the run resumes from its
# newest checkpoint: on the remaining nodes, or when Slurm starts the job again.
# 'scancel JOB' saves and ends it. docs/schedulers.md explains the options.
#
#SBATCH --job-name=sim
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=4
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --signal=B:TERM@300
#SBATCH --open-mode=append

# Eight ranks, and a node to spare. All nodes must see this directory.
cairn run -n 8 --launcher srun --every 10m -o result.txt ./sim &
run=$!

# Slurm signals this script, and bash does not pass that on.
trap 'kill -TERM $run' TERM
wait $run
status=$?
while kill -0 $run 2>/dev/null; do # a signal ended the wait
	wait $run
	status=$?
done

# 74 and 75: stopped, and the same command resumes. Slurm starts a job again that it
# has ended itself, unless scancel did; one that ended in time must ask for that.
if [ $status = 74 ] || [ $status = 75 ]; then
	if [ "$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)" = RUNNING ]; then
		scontrol requeue "$SLURM_JOB_ID"
	fi
fi
exit $status
