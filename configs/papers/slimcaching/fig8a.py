#!/usr/bin/env python3
"""fig8a.py - Figure 8(a): latency against the number of edge servers."""
import settings


def main():
    work = settings.session("Figure 8(a): latency against edge servers")
    counts = (2, 6) if work.quick else (2, 4, 6, 8, 10)
    values = [(str(count), {"cluster.servers.count": count}) for count in counts]
    settings.figure(work, "Figure 8(a): latency against edge servers", "servers", values,
                    too_large=("8", "10"))  # where joint takes 7 and 30 s
    work.end()


if __name__ == "__main__":
    main()
