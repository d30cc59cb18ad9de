"""What the server sees of a round's clients, and what a round reports of them."""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float


class ClientMetrics(NamedTuple):
    """Numbers that every client reports.

    Attributes:
      loss: the loss at the broadcast model, before training.
      update_norm: the Euclidean norm of the update; nan where a rewrite forms no update per client.
    """

    loss: Float[Array, "*M"]
    update_norm: Float[Array, "*M"]


class Cohort(NamedTuple):
    """The clients of a round as the server sees them.

    With several processes the arrays may be padded with copies of the last client, of weight 0. So take weighted sums,
    and M from `size`.

    Attributes:
      losses: the clients' losses before training.
      update_norms: the norms of the clients' updates.
      weights: the weights of the mean over clients, summing to 1; None for the uniform mean.
      size: M, the number of clients in the round, without padding.
      population: N, the number of all clients, also of those whose states are elsewhere at the moment; None where it is
        unknown, in `Method.round` of a method whose clients keep no state.
    """

    losses: Float[Array, "M"]
    update_norms: Float[Array, "M"]
    weights: Float[Array, "M"] | None
    size: int
    population: int | None


class RoundInfo(NamedTuple):
    """What a round reports.

    Attributes:
      loss: the weighted mean of the clients' losses before training.
      update_norm: the norm of the mean update q_t.
      client_losses: the clients' losses before training.
      client_norms: the norms of the clients' updates; nan where a rewrite forms no update per client.
      client_lr: gamma_t, the client learning rate that the round used.
      server_lr: eta_t, the server learning rate that the round used.
      decayed: whether the rates decay after this round.
    """

    loss: Float[Array, ""]
    update_norm: Float[Array, ""]
    client_losses: Float[Array, "M"]
    client_norms: Float[Array, "M"]
    client_lr: Float[Array, "..."]
    server_lr: Float[Array, ""]
    decayed: Bool[Array, ""]
