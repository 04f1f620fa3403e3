#!/bin/sh
# Noisy neighbour: one tenant sends more than the pool can take. Does the other one feel it?
#
# Three gateways on the same requests: one that passes everything on, so that requests wait in the servers in the order in
# which they came; one that holds what the pool cannot take (flow control), but serves it in that order, too; and one that
# holds it and lets the tenants take turns.
#
# Look at `per_tenant.quiet.ttft_p99_ms`. Without turns the quiet tenant waits with the noisy one; with turns it hardly
# notices, and the noisy one waits a little longer. Holding requests is not what helps: taking turns is.
#
# A run with seeds 1 to 10: the quiet tenant's 99th percentile of the time to first token was 6.3 s passed on, 6.7 s in order
# and 0.17 s in turns; that of the noisy one 6.5 s, 6.9 s and 7.7 s.
set -eu
here=$(dirname "$0")
held="--flow-control --saturation-detector concurrency --max-concurrency 16"
exec "${FOREBAY:-forebay}" compare --seeds "${SEEDS:-1..10}" "$@" \
  --variant "passed on:" \
  --variant "in order: $held" \
  --variant "in turns: $held --fairness-policy round-robin" \
  -- --workload-spec "$here/noisy-neighbour.yaml" \
  --model qwen/qwen3-14b --num-instances 2 --max-num-seqs 16 --routing-policy least-loaded
