#!/usr/bin/env python3
"""fig10.py - Figure 10: running times against the number of edge servers (a) and users (b)."""
import settings
import times


def main():
    work = settings.session("Figure 10: running times against servers and users", seeds=2)
    counts = (2, 4) if work.quick else (2, 4, 7, 10)
    times.figure(work, "Figure 10(a): time to place against edge servers", "servers",
                 [(str(count), {"cluster.servers.count": count}) for count in counts])
    counts = (10, 20) if work.quick else (10, 20, 35, 50)
    times.figure(work, "Figure 10(b): time to place against users", "users",
                 [(str(count), {"cluster.users.count": count}) for count in counts])
    work.end()


if __name__ == "__main__":
    main()
