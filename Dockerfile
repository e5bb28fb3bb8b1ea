# SPDX-License-Identifier: Apache-2.0
# snug in a container. For the CPU:      docker build -t snug .
# For NVIDIA GPUs (driver 580 or newer): docker build -t snug:cuda --build-arg SNUG_CUDA=on .
# The CUDA libraries and compiler come with libtorch, so debian:12 serves both; another Debian or
# Ubuntu works too: --build-arg BASE=nvidia/cuda:13.0.2-devel-ubuntu24.04
ARG BASE=debian:12

FROM ${BASE} AS build
ARG SNUG_CUDA=off
ARG PIP_INDEX_URL
ENV SNUG_CACHE=/opt/snug
COPY . /src
RUN /src/scripts/build -DSNUG_TESTS=OFF
# What only compiling needs is left behind; which packages the program needs, the program tells.
RUN rm -rf /opt/snug/logs /opt/snug/torch-*/torch/include /opt/snug/torch-*/torch/share /opt/snug/pyarrow-*/pyarrow/include \
      /opt/snug/torch-*/nvidia/cu13/include /opt/snug/torch-*/nvidia/cu13/bin /opt/snug/torch-*/nvidia/cu13/nvvm \
 && ldd /src/build/snug | awk '$3 ~ "^/(usr/)?lib" {print $3}' | xargs -n 1 realpath | xargs dpkg -S \
      | cut -d: -f1 | sort -u > /opt/snug/runtime-packages

FROM ${BASE}
COPY --from=build /opt/snug /opt/snug
RUN apt-get update \
 && xargs apt-get install -y --no-install-recommends ca-certificates openmpi-bin < /opt/snug/runtime-packages \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/build/snug /usr/local/bin/snug
COPY --from=build /src/recipes /usr/local/share/snug/recipes
# Read by the NVIDIA container runtime; without it they mean nothing.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /work
ENTRYPOINT ["snug"]
CMD ["--help"]
