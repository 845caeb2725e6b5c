# The gateway, and everything else that the one binary does, in an image of its own:
#
#   docker build -t regogate .
#   docker run -v "$PWD/config:/etc/regogate:ro" -p 127.0.0.1:8080:8080 regogate
#
# /etc/regogate holds regogate.yaml, which has to listen on 0.0.0.0; /var/lib/regogate is the one place
# that may be written to. --build-arg TAGS=opacli puts the OPA command line in, which is 11 MB more.
ARG GO_VERSION=1.26

FROM golang:${GO_VERSION} AS build
# Where modules come from; the default is Go's own.
ARG GOPROXY
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG TAGS=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags "$TAGS" -ldflags "-s -w -X main.version=$VERSION" -o /out/usr/local/bin/regogate ./cmd/regogate \
 && mkdir -p /out/etc/ssl/certs /out/etc/regogate /out/var/lib/regogate /out/tmp \
 && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ \
 && chmod 1777 /out/tmp && chown 65532:65532 /out/var/lib/regogate

FROM scratch
ARG VERSION=dev
LABEL org.opencontainers.image.title="regogate" \
      org.opencontainers.image.description="Policy-as-code gateway for the Model Context Protocol" \
      org.opencontainers.image.source="https://github.com/regogate/regogate" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /out/ /
# A number, so that who runs it can see that it is not root.
USER 65532:65532
WORKDIR /etc/regogate
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=6s --start-period=30s CMD ["/usr/local/bin/regogate", "health"]
ENTRYPOINT ["/usr/local/bin/regogate"]
CMD ["serve"]
