#!/usr/bin/env python3
"""fig6b.py - Figure 6(b): latency against the number of experts that a user holds."""
import settings


def main():
    work = settings.session("Figure 6(b): latency against local experts")
    counts = (100, 300) if work.quick else (50, 100, 200, 400)
    values = [(str(count), {"cluster.users.local_experts": count}) for count in counts]
    settings.figure(work, "Figure 6(b): latency against local experts", "experts of a user",
                    values, falls=True)
    work.end()


if __name__ == "__main__":
    main()
