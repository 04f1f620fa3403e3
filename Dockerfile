# syntax=docker/dockerfile:1
# The image: one static binary, and nothing else. Made for the platform that it is built on.
#
#   docker build --build-arg REVISION=$(git rev-parse HEAD) -t forebay:0.1.0 .

ARG RUST_VERSION=1.95

# musl's cargo links statically. build-base has the C compiler that `ring` is built with; protoc is not needed.
FROM rust:${RUST_VERSION}-alpine AS toolchain
RUN apk add --no-cache build-base
WORKDIR /src

# Dependencies alone: this layer is made anew only when they change. What stands for the crate's own code is empty.
FROM toolchain AS dependencies
COPY Cargo.toml Cargo.lock ./
RUN mkdir src \
 && touch src/lib.rs \
 && echo 'fn main() {}' | tee src/main.rs build.rs > /dev/null \
 && sed -i '/^\[\[bench\]\]/,/^$/d; /^\[\[test\]\]/,/^$/d' Cargo.toml \
 && cargo build --release --locked --bin forebay \
 && rm -r src build.rs Cargo.toml

FROM dependencies AS build
COPY Cargo.toml build.rs ./
COPY proto proto
COPY src src
COPY examples/configs examples/configs
# Cargo goes by times, and the empty files are younger than those of the repository.
# The build knows its commit by this: a label of `llm_d_epp_info`.
ARG REVISION=unknown
ENV FOREBAY_COMMIT=${REVISION}
RUN sed -i '/^\[\[bench\]\]/,/^$/d; /^\[\[test\]\]/,/^$/d' Cargo.toml \
 && touch build.rs src/lib.rs src/main.rs \
 && cargo build --release --locked --bin forebay

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Forebay" \
      org.opencontainers.image.description="Endpoint picker for LLM inference pools behind Envoy" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /src/target/release/forebay /forebay
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY LICENSE /LICENSE
# A number, so that `runAsNonRoot` can be checked. No such user exists, nor needs to.
USER 65532:65532
# ext_proc, health, metrics
EXPOSE 9002 9003 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["/forebay"]
