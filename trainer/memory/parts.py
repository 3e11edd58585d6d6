"""Estimate the memory of training a config by formulas, one for each backend.

The memory rail runs for every proposal, in a process without torch. So these are formulas, and a
test compares them with peaks that were counted operator by operator.

A step has moments that compete for its peak. Each is a line in the tokens of a step; the largest at
the config's own number is taken. P is the number of parameters, W those of the blocks' matrices, N
the tokens of a step, C those of a chunk of the loss, L blocks, D d_model, F d_ff, V the vocabulary
and V' the same padded to 64, H heads, G heads of keys and values, T seq_len, s the bytes of a
number in the blocks (4 in fp32, else 2), a 2 where the activation gates and else 1.

**The torch backend on a GPU** (:mod:`trainer.backends.fused`). Held always are 12 P, the fp32
weights and AdamW's two moments, and the bf16 copies that products read: of the blocks' matrices
2 W, of the head s V' D. A block keeps for each token

    the stream at both norms 2 s D · queries and attention's output 2 s D · keys, values
    2 s D G / H · the activation's input a s F · a number a head 4 H
    (rotary, a norm of queries and keys, or both: s D (1 + G / H) more; norms at the outputs of
    both halves: 2 s D more)

and the moments, besides what is held always, are

    the loss        4 V' D + s C V' + N (L block + 3 s D + 16)
    the last block  4 V' D + N (L block + s D + (2 + a) s F + 16)
    the first block 4 (P - W / L) + N (block + 2 s D + (2 + a) s F)
    the embedding   4 P + 4 N D            (8 V D more where it is the head too: two
                                           gradients, and their sum)
    the update      4 P

**Written out in torch's operators**, as on a CPU. 12 P and 2 bytes of each matrix below fp32, and
for each token and block Korthikanti et al. 2022 (arXiv 2205.05198), section 4.1, with a fused
attention that holds no scores and without dropout: 34 D becomes, at F = 4 D, 32 D bytes,

    norms 4 D · queries 2 D · keys, values 4 D G / H · inputs of the four products 6 D + 2 F ·
    GELU's input 2 F

with 4 F more for a gated second branch and its product (the square of ReLU keeps as much as GELU),
4 D for norms at both ends of both halves, 2 D (1 + G / H) for normed queries and keys, and twice
all of it in fp32. The CPU's
bf16 attention of short sequences holds its weights: 2 H T. The logits alive at once are counted
with all their copies (:data:`LOSS_BYTES`, :data:`CHUNK_BYTES`).

**Megatron-Core with TransformerEngine**: the same block and the number a head, all N tokens'
logits, the last norm's input and output 4 D, and workspaces of 0.1 GiB; in fp8 a byte less for the
inputs of three products and one more for the fourth's, which attention keeps in bf16: D + F less. A
parameter takes 18 bytes, in fp32 16: weight, gradient, moments, and a main weight beside one in
bf16. The published run on a GB10 is told by the same terms: it had bf16 weights and moments alone
(6), dropout's masks (2 D a block), and 14 bytes a logit.

**Muon** keeps one moment of the blocks' matrices: 4 W less. Its update holds, besides, the
gradients of the largest batch of matrices of one shape, their normalized momentum, and the products
of two steps: at most 20 bytes for each of the batch's numbers.

Not counted: the torch backend's workspaces (cuBLAS takes 8 to 32 MiB), the allocator's rounding,
and on a GPU the CUDA context, which is not an allocation but takes from the same memory.
"""

from dataclasses import dataclass

from trainer.code import parameters, slot_of
from trainer.machine.flops import block_gains, block_weights
from trainer.schema import Config

LOGITS_AT_ONCE = 1 << 27
"""Logits alive in training: half a GiB in fp32, 2,048 tokens of 50,257 words. A smaller chunk makes
the products with the head less efficient, and adds to the head's gradient more often (four bytes
read and four written per entry, each time). The best size has not yet been measured on a GPU."""

EXACT_LOGITS_AT_ONCE = 1 << 25
"""Logits alive in evaluation, in fp64: a quarter of a GiB, and as much for their log-softmax."""


def chunk_tokens(tokens: int, vocab_size: int, logits_at_once: int = LOGITS_AT_ONCE) -> int:
    """Return the tokens of a chunk, all of ``tokens`` if their logits fit into one.

    Chunks have equal size if at most twice the needed number allows it, since a compiled loss is
    compiled once per size. Otherwise the last is smaller.
    """
    most = max(1, logits_at_once // vocab_size)
    fewest = -(-tokens // most)
    for chunks in range(fewest, 2 * fewest + 1):
        if tokens % chunks == 0:
            return tokens // chunks
    return -(-tokens // fewest)


LOSS_BYTES = 12
"""Bytes per logit if all are held in torch's operators: log-softmax, its gradient from the loss,
and the gradient it passes on, in fp32."""
CHUNK_BYTES = 14
"""Bytes per logit of a chunk in the backward pass: bf16 logits, their fp32 copy, its log-softmax
and its gradient."""
MEGATRON_LOSS_BYTES = 14
"""Bytes per logit in Megatron-Core's own cross entropy: bf16 logits, fp32 logits, their softmax,
its gradient."""
WORKSPACE_BYTES = 0.1 * (1 << 30)
"""Workspaces of cuBLAS and TransformerEngine, as all peaks measured on an H200 and a GB10 show."""
PADDING = 64
"""The torch backend's head has a multiple of this many columns on a GPU."""
CPU_SHORT_SEQUENCE = 512
"""Longest sequence for which the CPU's bf16 attention holds its weights."""


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """Terms of an estimate."""

    fixed_bytes: float
    """Bytes at the largest moment of forward and backward pass, independent of a step's tokens."""
    per_token_bytes: float
    """Bytes at that moment for each token of a step."""
    update_bytes: float
    """Bytes at the update."""


def fused(config: Config, vocab_size: int) -> MemoryParts:
    """Return the parts for the torch backend on a GPU."""
    width, layers = config.d_model, config.n_layer
    size = 4 if config.precision == "fp32" else 2
    params, weights = parameter_count(config, vocab_size), layers * block_weights(config)
    padded = -(-vocab_size // PADDING) * PADDING
    head_copy = size * padded * width if size == 2 or padded != vocab_size else 0
    held = 12 * params + head_copy + (2 * weights if size == 2 else 0) - _moments_saved(config)
    branches = 2 if config.gated else 1
    keys = width * config.kv_heads / config.n_head
    block = size * (4 * width + 2 * keys + branches * config.d_ff) + 4 * config.n_head
    if config.positions == "rotary" or config.qk_norm:
        block += size * (width + keys)
    if config.norm_place != "pre":
        block += 2 * size * width
    feed_forward = (2 + branches) * size * config.d_ff
    head = 4 * padded * width
    chunk = chunk_tokens(config.tokens_per_step, vocab_size)
    table = 4 * vocab_size * width
    last_block = layers * block + size * width + feed_forward + 16
    update = held + 4 * params
    moments = (
        (held + head + size * chunk * padded, layers * block + 3 * size * width + 16),
        (held + head, last_block),
        (update - 4 * weights / layers, block + 2 * size * width + feed_forward),
        (update + (2 * table if config.tie_embeddings else 0), 4 * width),
    )
    update += _muon_bytes(config)
    # Each is a line in the tokens of a step; the largest at the config's own number counts.
    fixed, per_token = max(moments, key=lambda line: line[0] + line[1] * config.tokens_per_step)
    return MemoryParts(fixed, per_token, update)


def written_out(config: Config, vocab_size: int, *, on_cpu: bool) -> MemoryParts:
    """Return the parts for the torch backend in torch's own operators."""
    params = parameter_count(config, vocab_size)
    head = vocab_size * config.d_model
    block: float = _block_bytes(config)
    if on_cpu and config.precision == "bf16" and config.seq_len <= CPU_SHORT_SEQUENCE:
        block += 2 * config.n_head * config.seq_len
    if config.value("code.attention_scores"):
        # In fp32 the scores, the function's result and the softmax, and the weights in bf16.
        block += 14 * config.n_head * config.seq_len
    matrices = config.n_layer * block_weights(config) + head
    held: float = 12 * params + (0 if config.precision == "fp32" else 2 * matrices)
    held -= _moments_saved(config)
    per_token = config.n_layer * block
    chunk = chunk_tokens(config.tokens_per_step, vocab_size)
    if chunk < config.tokens_per_step:
        held += CHUNK_BYTES * chunk * vocab_size + 4 * head
        per_token += (4 if config.precision == "fp32" else 2) * config.d_model
    else:
        per_token += LOSS_BYTES * vocab_size
    update = 16 * params - _moments_saved(config) + _muon_bytes(config)
    return MemoryParts(held, per_token, update)


def megatron(
    config: Config,
    vocab_size: int,
    *,
    loss_bytes: int = MEGATRON_LOSS_BYTES,
    parameter_bytes: int | None = None,
    dropout: bool = False,
) -> MemoryParts:
    """Return the parts for Megatron-Core with TransformerEngine's layers.

    :param loss_bytes: bytes per logit at the loss.
    :param parameter_bytes: bytes per parameter there; None: those of our backend.
    :param dropout: whether each half of a block keeps a mask.
    """
    if parameter_bytes is None:
        # Weights, gradients, moments, and main weights beside those in bf16.
        parameter_bytes = 16 if config.precision == "fp32" else 18
    update = parameter_bytes * parameter_count(config, vocab_size) + WORKSPACE_BYTES
    held = update
    block = _block_bytes(config) + 4 * config.n_head
    if config.precision == "fp8":
        held += 2 * config.n_layer * block_weights(config)
        block -= config.d_model + config.d_ff
    if dropout:
        block += 2 * config.d_model
    per_token = config.n_layer * block + loss_bytes * vocab_size + 4 * config.d_model
    return MemoryParts(held, per_token, update)


def _moments_saved(config: Config) -> int:
    """Return the bytes of the second moments that Muon does not keep."""
    return 4 * config.n_layer * block_weights(config) if config.optimizer == "muon" else 0


def _muon_bytes(config: Config) -> int:
    """Return the bytes that Muon's largest batch of matrices takes during the update."""
    if config.optimizer != "muon":
        return 0
    width, keys = config.d_model, config.d_model * config.kv_heads // config.n_head
    up = 2 * config.d_ff if config.gated else config.d_ff
    numbers: dict[tuple[int, int], int] = {}
    for rows in (width, width, keys, keys, up, config.d_ff):
        shape = min(rows, width), max(rows, width)
        numbers[shape] = numbers.get(shape, 0) + config.n_layer * rows * width
    return 20 * max(numbers.values())


def parameter_count(config: Config, vocab_size: int) -> int:
    """Return the number of parameters of the GPT that every backend builds: no biases, one gain per
    norm, and what the config's own functions learn."""
    tables = vocab_size * (1 if config.tie_embeddings else 2)
    if config.positions == "learned":
        tables += config.seq_len
    matrices = tables * config.d_model + config.n_layer * block_weights(config)
    gains = config.d_model + config.n_layer * block_gains(config)
    layers = config.n_layer
    norms = 1 + layers * (4 if config.norm_place == "sandwich" else 2)
    uses = {"norm": (norms, config.d_model), "residual": (2 * layers, config.d_model)}
    uses |= {"logits": (1, vocab_size), "attention_scores": (layers, 0)}
    uses |= dict.fromkeys(("activation", "gate"), (layers, config.d_ff))
    learned = 0
    for key, source in config.code.items():
        slot = slot_of(key)
        places, width = uses.get(slot.name, (0, 0))  # other slots learn nothing
        learned += sum(places * (width if p.is_vector else 1) for p in parameters(slot, source))
    return matrices + gains + learned


def _block_bytes(config: Config) -> int:
    """Return the activations of one block for one token, between the forward pass and the
    backward."""
    hidden = (8 if config.gated else 4) * config.d_ff
    keys = 2 * config.d_model * config.kv_heads // config.n_head
    norms = (8 if config.norm_place == "sandwich" else 4) * config.d_model
    if config.qk_norm:
        norms += 2 * config.d_model + keys
    in_16_bits = norms + 8 * config.d_model + 2 * keys + hidden
    return 2 * in_16_bits if config.precision == "fp32" else in_16_bits
