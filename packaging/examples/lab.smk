#!/usr/bin/env -S snakemake --cores all --snakefile
# usage: lab.smk --config plan=PLAN [options="OPTIONS"] [out=FOLDER]
#
# A job of Snakemake for each point and repetition of PLAN, and one that gathers them in FOLDER
# (results/PLAN). OPTIONS are those of `sheaf lab points`, as "--repetitions 3 --seed 7". Options of
# Snakemake may follow: --cores 16, --executor slurm. On --engine netns give --cores 1, because
# points in real time disturb each other.
#
# A job that is done is a file, FOLDER/done/POINT. It runs again when that is missing, or when its
# command, a plan in a file of yours, or the program changes. For another seed or duration
# give another FOLDER: gather refuses to mix them, and builds that measured different results.
import hashlib
import shlex
import shutil
import subprocess
from pathlib import Path

if "plan" not in config:
    raise WorkflowError("no plan; give --config plan=PLAN, `sheaf lab list` has the names")
if not (program := shutil.which("sheaf")):
    raise WorkflowError("there is no sheaf in PATH; install it")

plan = str(config["plan"])
out = str(config.get("out", f"results/{Path(plan).stem}"))
options = shlex.split(str(config.get("options", "")))
points = subprocess.run(
    ["sheaf", "lab", "points", plan, *options, "--out", out], stdout=subprocess.PIPE, text=True
)
if points.returncode:
    raise WorkflowError("sheaf lab points refuses the plan or its options, see above")
# The last word of a command is the name of its point.
commands = {shlex.split(command)[-1]: command for command in points.stdout.splitlines()}
# Another build measures anew, as `sheaf lab run` does.
build = hashlib.sha256(Path(program).read_bytes()).hexdigest()
done = [f"{out}/done/{point}" for point in commands]
result = [f"{out}/{file}" for file in ["result.json", "rows.csv", "report.html"]]


localrules: all, gather


# Asked for the result alone, Snakemake does not notice that a point is missing.
rule all:
    input: done, result


rule gather:
    input: done
    output: result
    params: out=out
    shell: "sheaf lab gather {params.out:q}"


rule measure:
    input: [plan] if Path(plan).is_file() else []
    output: touch(f"{out}/done/{{point}}")
    params: command=lambda wildcards: commands[wildcards.point], build=build
    threads: 1
    shell: "{params.command} >/dev/null"
