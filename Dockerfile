# autoresearch in NVIDIA's NeMo container, on the torch, TransformerEngine and Megatron-Core that the
# container brings: nothing of them is replaced, and the build fails where something would be.
ARG BASE=nvcr.io/nvidia/nemo:26.04.00
FROM ${BASE}

# Of pyproject.toml: a node of a Ray cluster has `ray` besides (docker-compose.cluster.yml).
ARG EXTRAS="train serve huggingface"

WORKDIR /opt/autoresearch

# The container's torch is a pre-release by its number, which no range admits, so pip may not be asked
# about torch's family: what is there of it stays, at its version. Everything else is brought into the
# ranges of pyproject.toml, in the Python that has torch. That may be a virtual environment or the system's own, which some distributions
# mark as theirs alone (PEP 668): in an image that nobody else manages it is ours to add to.
COPY pyproject.toml ./
COPY docker/base_python.sh docker/requirements.py docker/
RUN export PIP_BREAK_SYSTEM_PACKAGES=1 \
 && python="$(docker/base_python.sh)" \
 && { "$python" -m pip --version || "$python" -m ensurepip; } \
 && "$python" docker/requirements.py held > held.txt \
 && "$python" docker/requirements.py wanted ${EXTRAS} > wanted.txt \
 && "$python" -m pip install --no-cache-dir --constraint held.txt --requirement wanted.txt

COPY README.md CHANGELOG.md LICENSE ./
COPY autoresearch autoresearch
COPY agent agent
COPY funnel funnel
COPY trainer trainer
COPY trajectory trajectory
COPY proposer_prompts proposer_prompts
COPY docs/*.md docs/
RUN export PIP_BREAK_SYSTEM_PACKAGES=1 \
 && python="$(docker/base_python.sh)" \
 && "$python" -m pip install --no-cache-dir --no-deps . \
 && "$python" docker/requirements.py unchanged held.txt \
 && { command -v autoresearch || ln -s "$("$python" docker/requirements.py script)" /usr/local/bin/; } \
 && mkdir -p /runs /data \
 && chown 1000:1000 /runs /data

# Not root. The root file system may be mounted read-only: all that is written is in /runs (campaigns),
# /data (prepared corpora, envelopes, compiled kernels) and /tmp.
USER 1000:1000
ENV HOME=/tmp AUTORESEARCH_DATA_DIR=/data PYTHONDONTWRITEBYTECODE=1
WORKDIR /runs
# The build fails where only root may run what the container brings, or where its packages and ours do
# not go together in whichever command: better now than at night.
RUN autoresearch --help \
 && "$(/opt/autoresearch/docker/base_python.sh)" /opt/autoresearch/docker/requirements.py imports
ENTRYPOINT ["autoresearch"]
CMD ["doctor"]
