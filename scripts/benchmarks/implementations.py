"""The same Transformer in posenc and in other libraries, as far as each library allows.

All use pre-norm, no dropout, fused causal attention, tied embeddings and exact GELU, except for
Llama and its counterpart, which have SwiGLU.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from nanogpt import NanoGPT
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from posenc.config.compose import compose
from posenc.model.build import build_model


@dataclass(frozen=True)
class Size:
    """The dimensions of a model, and the number of tokens per training step."""

    width: int
    layers: int
    heads: int
    feed_forward: int
    vocab_size: int
    tokens: int

    @property
    def gated_feed_forward(self) -> int:
        """The hidden width of a gated feed-forward layer with about as many parameters."""
        return 8 * round(2 * self.feed_forward / 3 / 8)


LossFunction = Callable[[Tensor, Tensor], Tensor]
BuiltModel = tuple[nn.Module, LossFunction]
"""A model, and a function that returns its mean loss in nats for tokens and targets [B, T]."""


@dataclass(frozen=True)
class Implementation:
    """`build(size, length)` returns a model and its loss function.

    `package` is the library to install. For other libraries, `counterpart` names the closest
    implementation in posenc. A model with `learned_positions` has an embedding for each position.
    """

    build: Callable[[Size, int], BuiltModel]
    package: str
    counterpart: str | None = None
    learned_positions: bool = False


def posenc(*overrides: str, gated: bool = False) -> Callable[[Size, int], BuiltModel]:
    def build(size: Size, length: int) -> BuiltModel:
        hidden = size.gated_feed_forward if gated else size.feed_forward
        sizes = {"width": size.width, "layers": size.layers, "heads": size.heads}
        dimensions = [f"model.{name}={value}" for name, value in sizes.items()]
        dimensions += [f"model.feed_forward={hidden}", f"train_length={length}"]
        dimensions += ["model.embedding_scale=1"]  # the other libraries do not scale embeddings
        config = compose("train", ["model=small", *dimensions, *overrides])
        config.modules = []
        model = build_model(config, size.vocab_size)
        return model, lambda tokens, targets: model.losses(tokens, targets).mean()

    return build


def nanogpt(size: Size, length: int) -> BuiltModel:
    return with_loss(
        NanoGPT(size.vocab_size, length, size.width, size.layers, size.heads, size.feed_forward)
    )


def gpt2(size: Size, length: int) -> BuiltModel:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=size.vocab_size,
        n_positions=length,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        n_inner=size.feed_forward,
        activation_function="gelu",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="sdpa",
    )
    model = GPT2LMHeadModel(config)
    return with_loss(model, lambda tokens: model(tokens, use_cache=False).logits)


def llama(size: Size, length: int) -> BuiltModel:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=size.vocab_size,
        max_position_embeddings=length,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=size.gated_feed_forward,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config)
    return with_loss(model, lambda tokens: model(tokens, use_cache=False).logits)


def x_transformers(*, rotary: bool) -> Callable[[Size, int], BuiltModel]:
    def build(size: Size, length: int) -> BuiltModel:
        from x_transformers import Decoder, TransformerWrapper

        decoder = Decoder(
            dim=size.width,
            depth=size.layers,
            heads=size.heads,
            attn_dim_head=size.width // size.heads,
            attn_flash=True,
            ff_mult=size.feed_forward / size.width,
            ff_no_bias=True,
            rotary_pos_emb=rotary,
            rotary_emb_dim=size.width // size.heads,
        )
        return with_loss(
            TransformerWrapper(
                num_tokens=size.vocab_size,
                max_seq_len=length,
                attn_layers=decoder,
                tie_embedding=True,
                use_abs_pos_emb=not rotary,
            )
        )

    return build


def litgpt(size: Size, length: int) -> BuiltModel:
    from litgpt.config import Config
    from litgpt.model import GPT

    config = Config(
        name="peer",
        block_size=length,
        padded_vocab_size=size.vocab_size,
        vocab_size=size.vocab_size,
        n_layer=size.layers,
        n_head=size.heads,
        n_embd=size.width,
        intermediate_size=size.feed_forward,
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
    )
    model = GPT(config)
    model.apply(model._init_weights)
    # litgpt ties the embeddings in its pretraining script.
    model.lm_head.weight = model.transformer.wte.weight
    return with_loss(model)


def with_loss(model: nn.Module, logits: Callable[[Tensor], Tensor] | None = None) -> BuiltModel:
    """Return the model and its mean cross-entropy, computed in float32."""

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        scores = model(tokens) if logits is None else logits(tokens)
        with torch.autocast(scores.device.type, enabled=False):
            return cross_entropy(scores.flatten(0, 1).float(), targets.flatten())

    return model, loss


IMPLEMENTATIONS = {
    "posenc nope": Implementation(posenc("encoding=nope"), "posenc"),
    "posenc learned": Implementation(posenc("encoding=learned"), "posenc", learned_positions=True),
    "posenc rope": Implementation(posenc("encoding=rope"), "posenc"),
    "posenc rope SwiGLU": Implementation(
        posenc("encoding=rope", "model.norm=rms_norm", "model.activation=swiglu", gated=True),
        "posenc",
    ),
    "nanoGPT": Implementation(nanogpt, "torch", "posenc learned", learned_positions=True),
    "transformers GPT-2": Implementation(
        gpt2, "transformers", "posenc learned", learned_positions=True
    ),
    "x-transformers": Implementation(
        x_transformers(rotary=False), "x-transformers", "posenc learned", learned_positions=True
    ),
    "x-transformers rotary": Implementation(
        x_transformers(rotary=True), "x-transformers", "posenc rope"
    ),
    "litgpt": Implementation(litgpt, "litgpt", "posenc rope"),
    "transformers Llama": Implementation(llama, "transformers", "posenc rope SwiGLU"),
}
