#!/usr/bin/env python3
"""fig7a.py - Figure 7(a): latency against the models that a user requests."""
import settings


def main():
    work = settings.session("Figure 7(a): latency against models of a user")
    counts = (3, 7) if work.quick else (3, 4, 5, 7)
    values = [(str(count), {"cluster.workloads.models_per_user": f"[{count},{count}]"})
              for count in counts]
    settings.figure(work, "Figure 7(a): latency against models of a user", "models", values)
    work.end()


if __name__ == "__main__":
    main()
