#!/usr/bin/env python3
"""fig8b.py - Figure 8(b): latency against the number of users, who share one bandwidth."""
import settings

SHARED_HZ = 100e6  # the paper names no figure: what 20 users at 5 MHz have


def main():
    work = settings.session("Figure 8(b): latency against users")
    counts = (10, 30) if work.quick else (10, 20, 30, 50)
    values = [(str(count), {"cluster.users.count": count,
                            "cluster.radio.shared_bandwidth_hz": SHARED_HZ}) for count in counts]
    settings.figure(work, "Figure 8(b): latency against users, 100 MHz in all", "users", values)
    work.end()


if __name__ == "__main__":
    main()
