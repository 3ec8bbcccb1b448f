"""The schemas of a run's tables. The unit is in the column name; absent values and NaN are null.

====================  ==============================================================================
``rounds``            one row per round: a server step, and what happened since the last.
                      ``selections``: calls of ``select`` so far: one a round where the server waits
                      for its cohort, more where it replaces clients one by one
``clients``           one row per client sent out, in the round in which its flight ended.
                      ``width``: the share of the model's width, or of the ranks of its adapters,
                      that it was sent
``choices``           one row per (client chosen, number that the rule noted of it): ``name``, as
                      ``component.value``, and ``value``; ``dispatch`` as in
                      ``clients``. Of rules that note numbers of clients
``evaluations``       one row per (evaluation, scope, client). Scope ``mean`` (client -1): the
                      headline, which for ``split.test = "client"`` is the unweighted mean over the
                      clients' own test sets; ``global`` (client -1): the one test set, where there
                      is one; ``client``: a row per client, if asked for; ``shared_mean`` (client
                      -1), ``shared_client``: the shared model on the clients' samples, where
                      clients have models of their own beside it; ``prototype_mean`` (client -1),
                      ``prototype_client``: clients examined by the nearest prototype (FedProto),
                      ``loss`` the mean squared distance to the right one; ``width_0.5`` and
                      ``width_0.5_mean`` (client -1): the model at a listed width below 1, on the
                      one test set and as a mean over the clients' own; ``validation`` (client -1),
                      ``validation_mean`` (client -1), ``validation_client``: the validation samples
                      of all clients together, the mean over clients, a row per client, with
                      ``split.validation``; ``new_mean_E`` (client -1), ``new_client_E``: clients
                      that no round asked, after E epochs on their own samples, at the end of the
                      run, with ``split.holdout_clients``
``metrics``           metrics beside loss and accuracy, one row per (evaluation, scope, client,
                      metric); scopes as in ``evaluations``, and ``pooled`` (client -1): all
                      clients' own test samples together. ``value`` is null where the metric is
                      undefined; ``undefined``: for how many clients it is
``federation``        one row per client, written once: sizes, label counts, noise, speed, what its
                      features and labels are like
``incidents``         one row per thing that went wrong with a client of a deployment: its upload
                      lost, late or rejected, a question not answered, its node gone or back, it set
                      aside; or with a machine of a simulation's engine (client -1).
                      ``at``: the date and time of the server's clock (UTC)
``claims``            one row per (client that lies, occasion, signal), where the world has
                      dishonest clients: what the client ``claimed`` and what is ``true``, of a
                      histogram its samples, of other vectors their lengths. ``occasion``:
                      ``enrolled`` (round 0), ``probed`` or ``reported``
``timings``           measured wall times of a round; equality of two runs never covers this table
====================  ==============================================================================

Columns with clear numbers of clients' data (samples, labels, losses, norms, weights) are null in a
private run, see `motley_privacy.published`.

``*_paper_bits`` follow the papers' convention (uplink only, 32 bits a sent value); the others count
everything that travels. So does ``paper_s``: local steps and these bits take time, nothing else
does.
"""

from __future__ import annotations

import pyarrow as pa

_i = pa.int64()
_f = pa.float64()
_s = pa.string()

_EVALUATED = [
    ("round", _i),
    ("selections", _i),
    ("time_s", _f),
    ("paper_s", _f),
    ("total_bits", _f),
    ("total_up_paper_bits", _f),
    ("scope", _s),
    ("client", _i),
    ("examples", _i),
]
"""After which round, and on whose samples, a model was evaluated."""

TABLES: dict[str, pa.Schema] = {
    "rounds": pa.schema(
        [
            ("round", _i),
            ("selections", _i),
            ("dispatch", _i),
            ("start_s", _f),
            ("time_s", _f),
            ("paper_s", _f),
            ("available", _i),
            ("probed", _i),
            ("selected", _i),
            ("accepted", _i),
            ("late", _i),
            ("dropped", _i),
            ("rejected", _i),
            ("train_loss", _f),
            ("update_norm", _f),
            ("weight_sum", _f),
            ("budget", _f),
            ("down_bits", _f),
            ("up_bits", _f),
            ("probe_down_bits", _f),
            ("probe_up_bits", _f),
            ("up_paper_bits", _f),
            ("total_bits", _f),
            ("total_up_bits", _f),
            ("total_up_paper_bits", _f),
            ("notes", _s),
        ]
    ),
    "clients": pa.schema(
        [
            ("round", _i),
            ("dispatch", _i),
            ("client", _i),
            ("outcome", _s),
            ("version", _i),
            ("staleness", _i),
            ("num_examples", _i),
            ("local_steps", _i),
            ("weight", _f),
            ("score", _f),
            ("loss", _f),
            ("update_norm", _f),
            ("start_s", _f),
            ("download_s", _f),
            ("compute_s", _f),
            ("upload_s", _f),
            ("bits_down", _f),
            ("bits_up", _f),
            ("theta", _f),
            ("up_mbps", _f),
            ("width", _f),
        ]
    ),
    "choices": pa.schema(
        [("round", _i), ("dispatch", _i), ("client", _i), ("name", _s), ("value", _f)]
    ),
    "evaluations": pa.schema(
        [
            *_EVALUATED,
            ("loss", _f),
            ("accuracy", _f),
        ]
    ),
    "metrics": pa.schema(
        [
            *_EVALUATED,
            ("metric", _s),
            ("value", _f),
            ("undefined", _i),
        ]
    ),
    "federation": pa.schema(
        [
            ("client", _i),
            ("num_train", _i),
            ("num_validation", _i),
            ("num_test", _i),
            ("held_out", _i),
            ("noise", _f),
            ("batch_size", _i),
            ("step_s", _f),
            ("up_mbps", _f),
            ("domain", _i),
            ("cluster", _i),
            ("labels", pa.list_(_i)),
        ]
    ),
    "incidents": pa.schema(
        [
            ("round", _i),
            ("time_s", _f),
            ("at", _s),
            ("client", _i),
            ("event", _s),
            ("dispatch", _i),
            ("reason", _s),
        ]
    ),
    "claims": pa.schema(
        [
            ("round", _i),
            ("client", _i),
            ("occasion", _s),
            ("signal", _s),
            ("claimed", _f),
            ("true", _f),
        ]
    ),
    "privacy": pa.schema(
        [("round", _i), ("client", _i), ("signals", _i), ("choices", _i), ("sums", _i)]
    ),
    "timings": pa.schema(
        [
            ("round", _i),
            ("wall_s", _f),
            ("select_s", _f),
            ("measure_s", _f),
            ("plan_s", _f),
            ("train_s", _f),
            ("aggregate_s", _f),
            ("evaluate_s", _f),
            ("write_s", _f),
        ]
    ),
}

EQUAL_TABLES = (
    *("rounds", "clients", "choices", "evaluations", "metrics", "federation", "claims"),
    "privacy",
)
"""Two runs of the same file and seed agree in these, to the last bit."""
