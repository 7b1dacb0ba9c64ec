#!/usr/bin/env python3
"""table_lossy_cells.py - best_lossy against best_lossless, cell by cell: what substitution gains.

A cell is a trace with the scores of all experts, a GPU and a share of the experts that is resident.
The exit code is 1 where best_lossy is slower by over 0.1 % in one of them.
"""

import sys

import compositions as c
from table_cells import PROFILES, SHARES
from table_lossy import TRACES, shares


def main():
    arguments = c.options(__doc__.splitlines()[0])
    traces = c.present(TRACES, arguments)
    print(f"TPOT in ms, mean of {arguments.tokens:,} tokens, batch 1, alpha 0.3; in brackets the per")
    print("cent of choices that were substituted")
    print(f"{'trace':16} {'profile':17} {'%':2} {'best_lossless':>13} {'best_lossy':>16} {'gain':>7}")
    gains, slower = [], 0
    for trace in traces:
        for profile in PROFILES:
            for share in SHARES:
                resident = [f"memory.experts={2 * trace.half * share // 100}"]
                exact = c.run(arguments, "best_lossless.toml", trace, profile, resident)
                lossy = c.run(arguments, "best_lossy.toml", trace, profile, resident)
                a, b = exact["tpot_ms"]["mean"], lossy["tpot_ms"]["mean"]
                gains.append(1 - b / a)
                slower += b > 1.001 * a
                print(f"{trace.name:16} {profile:17} {share:2} {a:13.3f} {b:9.3f} "
                      f"({shares(lossy):4.1f}) {100 * gains[-1]:6.1f}%", flush=True)
    print(f"slower by over 0.1 % in {slower} of {len(gains)} cells; gain "
          f"{100 * sum(gains) / len(gains):.1f} % in the mean, {100 * min(gains):.1f} to {100 * max(gains):.1f} %")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
