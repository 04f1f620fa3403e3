#!/bin/sh
# Token bucket: admission is what makes less of the load, and it makes a choice, too.
#
# 500 requests a second come to four servers. The bucket holds 10000 tokens and gets 1000 a second; a request costs the
# tokens of its prompt. By these numbers 19 requests of 512 tokens could come at once, and then two a second.
#
# Look at `Rejected Requests (Admission)`, and at `total_input_tokens` beside `injected_requests` of the cluster: a bucket
# that is nearly empty has room for short prompts and none for long ones, so that more come in than one would think, and
# they are the short ones. `num_requests` is always the sum of those injected and those rejected.
#
# A run: 118 of 2000 were let in, and their prompts had 118 tokens on average; those offered had 512.
set -eu
exec "${FOREBAY:-forebay}" simulate --model qwen/qwen3-14b \
  --num-instances 4 --rate 500 --num-requests 2000 \
  --admission-policy token-bucket \
  --token-bucket-capacity 10000 --token-bucket-refill-rate 1000 \
  --summarize-trace "$@"
