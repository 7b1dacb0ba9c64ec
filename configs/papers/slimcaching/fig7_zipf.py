#!/usr/bin/env python3
"""fig7_zipf.py - latency against the skew of what is requested: models, and experts in them."""
import settings


def main():
    work = settings.session("Latency against the Zipf exponents of models and experts")
    of_models = (0.4, 1.6) if work.quick else (0, 0.8, 1.6)
    settings.figure(work, "Latency against the popularity of models", "Zipf, models",
                    [(str(zipf), {"cluster.workloads.model_zipf": zipf}) for zipf in of_models])
    of_experts = (0, 1.5) if work.quick else (0, 1, 2)
    settings.figure(work, "Latency against the popularity of experts", "Zipf, experts",
                    [(str(zipf), {"cluster.workloads.zipf": zipf}) for zipf in of_experts])
    work.end()


if __name__ == "__main__":
    main()
