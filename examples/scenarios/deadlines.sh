#!/bin/sh
# Deadlines in an overload: who is served when not everybody can be served in time?
#
# The pool gets 45 requests a second and can take some 37. A client wants its first token within a second. Served in order,
# each waits behind all that came before it, and after a few seconds nobody gets a first token in time: the pool works for
# requests that are late already. By deadline, a request whose deadline has passed goes behind those that can still be served
# in time, so that a few wait for long and most are in time.
#
# The target is counted until the first token, and the queue only knows when it releases a request: 50 ms of the second are
# left for the prefill. Without them, a fifth fewer are good.
#
# Look at `slo_attainment` and `goodput_rps`: requests that got their first token in time. `ttft_p99_ms` is what those wait
# who are late: a TTL (`--request-ttl`) would tell them early.
#
# A run with seeds 1 to 10: 11.8 good requests a second passed on, 9.0 in order, 31.2 by deadline.
set -eu
here=$(dirname "$0")
held="--flow-control --saturation-detector concurrency --max-concurrency 16"
exec "${FOREBAY:-forebay}" compare --seeds "${SEEDS:-1..10}" "$@" \
  --variant "passed on:" \
  --variant "in order: $held" \
  --variant "by deadline: $held --dispatch-order slo-deadline --slo-targets standard=950ms" \
  -- --workload-spec "$here/deadlines.yaml" \
  --model qwen/qwen3-14b --num-instances 2 --max-num-seqs 16 --routing-policy least-loaded
