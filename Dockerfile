# autoresearch in NVIDIA's NeMo container, on the torch, TransformerEngine and Megatron-Core that the
# container brings: nothing of them is replaced, and the build fails where something would be.
ARG BASE=nvcr.io/nvidia/nemo:26.04.00
FROM ${BASE}

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /opt/autoresearch
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY docker/requirements.py docker/
COPY agent agent
COPY trainer trainer
COPY trajectory trajectory
COPY proposer_prompts proposer_prompts

# The container's torch is a pre-release by its number, which no range admits, so pip may not be asked
# about it: what is there already stays, at its version, and only what is missing is installed.
RUN { python3 -m pip --version || python3 -m ensurepip; } \
 && python3 docker/requirements.py held > /tmp/held.txt \
 && python3 docker/requirements.py missing serve huggingface > /tmp/missing.txt \
 && python3 -m pip install --no-cache-dir --constraint /tmp/held.txt --requirement /tmp/missing.txt \
 && python3 -m pip install --no-cache-dir --no-deps . \
 && python3 docker/requirements.py held | diff /tmp/held.txt - \
 && rm /tmp/held.txt /tmp/missing.txt \
 && mkdir -p /runs /data \
 && chown 1000:1000 /runs /data

# Not root. The root file system may be mounted read-only: all that is written is in /runs (campaigns),
# /data (prepared corpora, envelopes, compiled kernels) and /tmp.
USER 1000:1000
ENV HOME=/tmp AUTORESEARCH_DATA_DIR=/data PYTHONDONTWRITEBYTECODE=1
WORKDIR /runs
# The build fails where only root may run what the container brings: better now than at night.
RUN ["autoresearch", "--help"]
ENTRYPOINT ["autoresearch"]
CMD ["doctor"]
