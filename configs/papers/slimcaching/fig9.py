#!/usr/bin/env python3
"""fig9.py - Figure 9: running times against storage (a) and the number of models (b)."""
import settings
import times


def main():
    work = settings.session("Figure 9: running times against storage and models", seeds=2)
    sizes = (1.25, 5) if work.quick else (1.25, 2.5, 5, 7.5)
    times.figure(work, "Figure 9(a): time to place against storage", "storage",
                 [(f"{size} GB", {settings.STORAGE: size * 1e9}) for size in sizes])
    counts = (1, 2) if work.quick else (1, 2, 3, 4)
    times.figure(work, "Figure 9(b): time to place against models", "models",
                 [(str(7 * count), {"cluster.models.count": count}) for count in counts])
    work.end()


if __name__ == "__main__":
    main()
