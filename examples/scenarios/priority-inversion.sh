#!/bin/sh
# Priority inversion: somebody waits for a short answer behind long ones that nobody waits for.
#
# Model servers serve what they have in the order in which it came, so that a critical request stands behind every summary
# of the burst before it. The same requests are held at the gateway in one queue for all, and then by priority; and last,
# passed on to servers that schedule by priority themselves (`--scheduler priority-fcfs`).
#
# Look at `per_class.critical.ttft_p99_ms`: one queue at the gateway is no better than one in the server. Priorities are
# what helps, at either place; `per_class.batch.ttft_mean_ms` is what they cost.
#
# A run with seeds 1 to 10: the 99th percentile of the time to first token of critical requests was 9.2 s passed on, 9.1 s in
# one queue, 0.62 s by priority, and 1.0 s with servers that go by priority. The mean of the batch went from 3.9 s to 4.4 s.
set -eu
here=$(dirname "$0")
held="--flow-control --saturation-detector concurrency --max-concurrency 16"
exec "${FOREBAY:-forebay}" compare --seeds "${SEEDS:-1..10}" "$@" \
  --variant "passed on:" \
  --variant "one queue: $held --dispatch-order fifo" \
  --variant "by priority: $held --dispatch-order priority" \
  --variant "servers by priority: --scheduler priority-fcfs" \
  -- --workload-spec "$here/priority-inversion.yaml" \
  --model qwen/qwen3-14b --num-instances 2 --max-num-seqs 16 --routing-policy least-loaded
