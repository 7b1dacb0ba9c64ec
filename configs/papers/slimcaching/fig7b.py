#!/usr/bin/env python3
"""fig7b.py - Figure 7(b): latency against the bandwidth of a user."""
import settings


def main():
    work = settings.session("Figure 7(b): latency against the bandwidth of a user")
    rates = (2, 10) if work.quick else (1, 2, 5, 20)
    values = [(f"{rate} MHz", {"cluster.radio.user_bandwidth_hz": rate * 1e6}) for rate in rates]
    _, columns = settings.figure(work, "Figure 7(b): latency against a user's bandwidth",
                                 "bandwidth", values, falls=True)
    # What goes over the air is the same for every placement (Equation 11), so what a placement
    # saves is the same at every bandwidth. LFU's does not depend on the bandwidth either.
    for (label, _), column in zip(values, columns):
        for found, first in zip(column, columns[0]):
            saved = [result["lfu"]["facts"]["saved_s"] for result in (found, first)]
            work.require(abs(saved[0] / saved[1] - 1) < 1e-6,
                         f"{label}: LFU saves {saved[0]} s, and {saved[1]} s at {values[0][0]}")
    work.end()


if __name__ == "__main__":
    main()
