"""A round of secure aggregation in one process, with clients that drop out where a test says."""

from __future__ import annotations

import random

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from motley_flower.secure.masking_client import SecureClient
from motley_flower.secure.server import SecureServer
from motley_flower.secure.terms import SecureOptions, SecureTerms

RUN = b"a run, 16 bytes."


def entropy_of(seed):
    """Bytes that a seed gives, so that a failing test can be repeated."""
    return random.Random(seed).randbytes


def people(n, options, seed=0, ids=None):
    """Return clients with their keys registered, by id, and the register."""
    ids = list(range(n)) if ids is None else ids
    source = entropy_of(seed)
    private = {k: source(32) for k in ids}
    register = {
        k: Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()
        for k, key in private.items()
    }
    return {
        k: SecureClient(k, private[k], register, options, entropy_of((seed, k).__hash__()))
        for k in ids
    }, register


def terms_of(options, cohort, size, round=1, attempt=0, run=RUN):
    return SecureTerms(run, round, attempt, options, size, tuple(cohort))


class Round:
    """One attempt: ``lost[step]`` are the clients that do not answer that step, and none after
    it."""

    def __init__(self, clients, register, terms, vectors, lost=None):
        self.clients = clients
        self.terms = terms
        self.vectors = vectors
        self.lost = lost or {}
        self.server = SecureServer(terms, register)
        self.gone = set()
        self.up = {}
        self.down = {}
        self.sent = {}

    def step(self, name, messages, answer):
        self.gone |= set(self.lost.get(name, ()))
        self.sent[name] = messages
        answers = {k: answer(self.clients[k], m) for k, m in messages.items() if k not in self.gone}
        self.down[name] = max(len(m) for m in messages.values())
        self.up[name] = max((len(m) for m in answers.values()), default=0)
        return answers

    def to_masked(self):
        """Return the messages that follow the masked vectors."""
        server = self.server
        answers = self.step("keys", server.open(), lambda c, m: c.begin(m))
        answers = self.step("shares", server.keys(answers), lambda c, m: c.share(m))
        answers = self.step(
            "masked", server.shares(answers), lambda c, m: c.mask(m, self.vectors[c.client])
        )
        return server.masked(answers)

    def to_unmask(self):
        """Return the messages that ask for shares."""
        messages = self.to_masked()
        if self.terms.options.active:
            messages = self.server.signatures(
                self.step("consistency", messages, lambda c, m: c.confirm(m))
            )
        return messages

    def run(self):
        """Return the sum."""
        return self.server.unmask(self.step("unmask", self.to_unmask(), lambda c, m: c.unmask(m)))


def plain_sum(vectors, who):
    """The sum of these clients' encoded vectors, modulo the width of their numbers."""
    return np.sum([vectors[k] for k in who], axis=0, dtype=next(iter(vectors.values())).dtype)


def a_round(n=10, size=7, lost=None, seed=0, ids=None, **options):
    chosen = SecureOptions(**{"clip": 1.0, "bits": 16, **options})
    clients, register = people(n, chosen, seed, ids)
    terms = terms_of(chosen, sorted(clients), size)
    numbers = np.random.default_rng(seed)
    vectors = {
        k: terms.encoding.encode(
            numbers.normal(size=size),
            int(numbers.integers(1, chosen.max_weight + 1)),
            entropy_of(k),
        )
        for k in clients
    }
    return Round(clients, register, terms, vectors, lost)
