#!/usr/bin/env python3
# guard_cost.py - what `[plugins] guard` costs: processor time of run and replay with it off, default
# and full, interleaved, so that a machine whose speed swings treats them alike.
#
#   tests/perf/guard_cost.py build/release/bin/moorage [--rounds 9] [--tokens 4000] [--guards default,full]
import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
config = root / "configs/quickstart.toml"
trace = root / "configs/traces/qwen15moe-shape.long.safetensors"


def cpu_seconds(command):
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime - start.ru_utime + end.ru_stime - start.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--guards", default="default,full")
    arguments = parser.parse_args()
    guards = ["off", *arguments.guards.split(",")]
    if not trace.exists():
        sys.exit(f"{trace} is not there; see configs/traces/README.md")
    run = [arguments.program, "run", config, "--set", f"run.tokens={arguments.tokens}"]
    prefetch = ["--set", "prefetch.plugin=random", "--set", "memory.buffer_experts=4"]
    replay = [arguments.program, "replay", trace, "--policies", "lru", "--slots", "25%", "--jobs", "1"]
    work = {
        "run, lru": lambda guard: [*run, "--set", f"plugins.guard={guard}"],
        "run, lru and prefetch": lambda guard: [*run, *prefetch, "--set", f"plugins.guard={guard}"],
        "replay, lru": lambda guard: [*replay, "--guard", guard],
    }
    for name, command in work.items():
        times = {guard: [] for guard in guards}
        for _ in range(arguments.rounds):
            for guard in guards:
                times[guard].append(cpu_seconds(command(guard)))
        off = statistics.median(times["off"])
        speeds = []
        for guard in guards[1:]:
            pairs = [a / b for a, b in zip(times["off"], times[guard])]
            speeds.append(f"{guard} {statistics.median(pairs):.3f}")
        print(f"{name}: off {off:.3f} s of processor time; speed against it: {', '.join(speeds)}")


if __name__ == "__main__":
    os.environ.pop("MOORAGE_ONE_PROCESS", None)
    main()
