#!/bin/sh
# Overload, with flow control and without: who gets what when there is not enough for all?
#
# The pool gets 60 requests a second and can take some 37. Passed on, everybody waits longer and longer. Held by priority,
# critical and standard requests are served as if there was no overload, and the batch waits. Bounded, too (100 places,
# 10 s, and whoever is more urgent gets the place of a batch request), the rest of the batch is refused soon enough that
# those who are served are served in time.
#
# Look at `slo_attainment` and `goodput_rps`: requests that got their first token in time. `completed_share` is what the
# bounds cost. `tokens_per_sec` says that the pool as such is not faster.
#
# A run with seeds 1 to 10: 19.7 good requests a second passed on, 26.3 held, 35.6 held and bounded, for which a quarter of
# the requests, all of the batch, was turned away. The pool made 2387, 2320 and 2294 tokens a second.
set -eu
here=$(dirname "$0")
held="--flow-control --saturation-detector concurrency --max-concurrency 16"
exec "${FOREBAY:-forebay}" compare --seeds "${SEEDS:-1..10}" "$@" \
  --variant "passed on:" \
  --variant "held: $held" \
  --variant "held, bounded: $held --max-gateway-queue-depth 100 --queue-shedding --request-ttl 10s" \
  -- --workload-spec "$here/overload.yaml" \
  --model qwen/qwen3-14b --num-instances 2 --max-num-seqs 16 --routing-policy least-loaded
