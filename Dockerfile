# SPDX-License-Identifier: Apache-2.0
# snug in a container, with the course of docs/lab as notebooks.
#   For the CPU:                           docker build -t snug .
#   For NVIDIA GPUs (driver 580 or newer): docker build -t snug:cuda --build-arg SNUG_CUDA=on .
#   The notebooks:                         docker run --rm --gpus all -p 8888:8888 -v "$PWD:/work" snug:cuda
#   A command:                             docker run --rm --gpus all -v "$PWD:/work" snug:cuda snug plan …
# The CUDA libraries and compiler come with libtorch, so debian:12 serves both; another Debian or
# Ubuntu works too: --build-arg BASE=nvidia/cuda:13.0.2-devel-ubuntu24.04
ARG BASE=debian:12

FROM ${BASE} AS build
ARG SNUG_CUDA=off
ARG PIP_INDEX_URL
ENV SNUG_CACHE=/opt/snug
COPY . /src
RUN /src/scripts/build -DSNUG_TESTS=OFF
# What only compiling needs is left behind; which packages the program needs, the program tells (dpkg -S does
# not find what every base image has, and says so with an exit status that must not end this).
# hadolint ignore=DL4006
RUN rm -rf /opt/snug/logs /opt/snug/torch-*/torch/include /opt/snug/torch-*/torch/share /opt/snug/pyarrow-*/pyarrow/include \
      /opt/snug/torch-*/nvidia/cu13/include /opt/snug/torch-*/nvidia/cu13/bin /opt/snug/torch-*/nvidia/cu13/nvvm \
 && ldd /src/build/snug | awk '$3 ~ "^/(usr/)?lib" {print $3}' | xargs -n 1 realpath | xargs dpkg -S \
      | cut -d: -f1 | sort -u > /opt/snug/runtime-packages

# Jupyter, and the notebooks made from docs/lab. A Python environment runs where it was made: /opt/jupyter.
FROM ${BASE} AS notebooks
ARG PIP_INDEX_URL
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/*
COPY scripts/wheels/jupyter.txt /src/scripts/wheels/jupyter.txt
RUN python3 -m venv /opt/jupyter \
 && /opt/jupyter/bin/pip install --no-cache-dir --only-binary=:all: -r /src/scripts/wheels/jupyter.txt
COPY scripts/lib /src/scripts/lib
COPY docs /src/docs
COPY recipes /src/recipes
RUN /opt/jupyter/bin/python /src/scripts/lib/make_notebooks.py /src /opt/lab --copy

FROM ${BASE}
COPY --from=build /opt/snug /opt/snug
RUN apt-get update \
 && xargs apt-get install -y --no-install-recommends ca-certificates openmpi-bin python3 < /opt/snug/runtime-packages \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/build/snug /usr/local/bin/snug
COPY --from=notebooks /opt/jupyter /opt/jupyter
COPY --from=notebooks /opt/lab /usr/local/share/snug/lab
COPY recipes /usr/local/share/snug/recipes
COPY scripts/lib/container_entry /usr/local/bin/container_entry
# Read by the NVIDIA container runtime; without it they mean nothing.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /work
EXPOSE 8888
ENTRYPOINT ["container_entry"]
