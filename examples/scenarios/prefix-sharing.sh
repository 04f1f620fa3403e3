#!/bin/sh
# Prefix sharing: prompts that begin with one of twelve long texts, and KV caches that hold about six of them each.
#
# In turns, every server is asked about every text and keeps computing what it has just forgotten. By the beginnings of
# prompts, each text has a server where it stays. By affinity alone, a text that everybody asks about would be everybody's
# queue, which is why something about load belongs beside it.
#
# Look at `cache_hit_rate` and `ttft_mean_ms`. `by load` shows that it is not load that makes the difference.
#
# A run with seeds 1 to 10: the hit rate was 0.56 in turns and by load, and 0.93 by prefix and by cache; the mean time to first
# token 48.9 ms, 49.6 ms, 37.4 ms and 37.3 ms.
set -eu
here=$(dirname "$0")
exec "${FOREBAY:-forebay}" compare --seeds "${SEEDS:-1..10}" "$@" \
  --variant "in turns: --routing-policy round-robin" \
  --variant "by load: --routing-policy least-loaded" \
  --variant "by prefix: --routing-policy weighted --routing-scorers prefix-affinity:3,queue-depth:1" \
  --variant "by cache: --routing-policy weighted --routing-scorers precise-prefix-cache:3,queue-depth:1" \
  -- --workload-spec "$here/prefix-sharing.yaml" \
  --model qwen/qwen3-14b --num-instances 4 --total-kv-blocks 1500
