"""NVFlare's training script of a client: receive the model, train it, send it back."""

from __future__ import annotations

import json

import nvflare.client as flare
import torch
from nvflare_model import Named
from work import parse, train


def main() -> None:
    run = parse()
    torch.set_num_threads(1)  # ten processes share the cores
    flare.init()
    site = flare.get_site_name()
    x, y = run.client(int(site.rpartition("-")[2]) - 1)
    model = Named(run.load.name, run.precision)
    steps = 0
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        if site == "site-1" and received.current_round > 0:
            run.mark()  # the round before has ended
        model.load_state_dict(received.params)
        done = train(model, x, y, run)
        steps += done
        (run.out / f"{site}.json").write_text(json.dumps(steps))
        parameters = {name: values.detach().cpu() for name, values in model.state_dict().items()}
        flare.send(flare.FLModel(params=parameters, meta={"NUM_STEPS_CURRENT_ROUND": done}))


if __name__ == "__main__":
    main()
