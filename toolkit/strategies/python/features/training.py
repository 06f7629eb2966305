"""Parts of a training step besides the optimizers that step alone: schedules, clipping, hooks."""

from __future__ import annotations

from tcdebug.strategies.python.feature import statements

STEP = """
TRAINED = torch.nn.Parameter(torch.full((2, 2), 2.0))
STEPS_LOG = []
TRAINER = torch.optim.{name}([TRAINED]{flags})
"""
SGD = STEP.format(name="SGD", flags=", lr=0.5, momentum=0.5")
SCHEDULED = f"{SGD}\nSCHEDULER = torch.optim.lr_scheduler.{{}}\n"
GRADIENT = "TRAINED.grad = {a}.detach().sum().float().expand(2, 2).contiguous()\n"
WEIGHTS = "TRAINED.detach().sum()"
CHANGES = (
    "TRAINER.param_groups[0]['lr'] = 0.25",
    "TRAINED.data.fill_(3.0)",
    "TRAINER.state.clear()",
    "TRAINED.grad = None",
)
HOOKED = f"""
{SGD}
TRAINER.register_step_pre_hook(lambda optimizer, args, kwargs: STEPS_LOG.append("pre"))
TRAINER.register_step_post_hook(lambda optimizer, args, kwargs: STEPS_LOG.append("post"))
"""
AVERAGED = """
AVERAGED_MODEL = torch.nn.Linear(2, 2, bias=False)
with torch.no_grad():
    AVERAGED_MODEL.weight.fill_(2.0)
AVERAGE = torch.optim.swa_utils.AveragedModel(
    AVERAGED_MODEL, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
"""
SPARSE = """
EMBEDDED = torch.nn.Embedding(3, 2, sparse=True)
with torch.no_grad():
    EMBEDDED.weight.fill_(1.0)
SPARSE = torch.optim.SparseAdam(EMBEDDED.parameters(), lr=0.5)
"""
TRAINING = (
    statements("Muon", f"{GRADIENT}TRAINER.step()\n{{t}} = {{a}} + {WEIGHTS}",
               STEP.format(name="Muon", flags=", lr=0.5"), *CHANGES,
               "TRAINER.param_groups[0]['nesterov'] = False"),
    statements("LBFGS", "def closure():\n    TRAINER.zero_grad()\n"
               "    loss = (TRAINED * TRAINED).sum()\n    loss.backward()\n    return loss\n"
               f"TRAINER.step(closure)\n{{t}} = {{a}} + {WEIGHTS}",
               STEP.format(name="LBFGS", flags=", max_iter=2"), *CHANGES),
    statements("sparse gradient", "EMBEDDED(torch.tensor([0, 2])).sum().backward()\n"
               "SPARSE.step()\nSPARSE.zero_grad()\n{t} = {a} + EMBEDDED.weight.detach().sum()",
               SPARSE, "EMBEDDED.weight.data.fill_(3.0)"),
    statements("schedule", f"{GRADIENT}TRAINER.step()\nSCHEDULER.step()\n"
               f"{{t}} = {{a}} * TRAINER.param_groups[0]['lr'] + {WEIGHTS}",
               SCHEDULED.format("StepLR(TRAINER, 1, gamma=0.5)"), *CHANGES,
               "SCHEDULER.gamma = 0.25"),
    statements("schedule of a function", f"{GRADIENT}TRAINER.step()\nSCHEDULER.step()\n"
               f"{{t}} = {{a}} * SCHEDULER.get_last_lr()[0] + {WEIGHTS}",
               SCHEDULED.format("LambdaLR(TRAINER, lambda epoch: 0.5 ** epoch)"), *CHANGES),
    statements("clipped gradient", f"{GRADIENT}norm = torch.nn.utils.clip_grad_norm_([TRAINED], "
               f"{{c}})\nTRAINER.step()\n{{t}} = {{a}} * norm + {WEIGHTS}", SGD, *CHANGES),
    statements("clipped values", f"{GRADIENT}torch.nn.utils.clip_grad_value_([TRAINED], 1.5)\n"
               f"TRAINER.step()\n{{t}} = {{a}} + {WEIGHTS}", SGD, *CHANGES),
    statements("hooks of an optimizer", f"{GRADIENT}TRAINER.step()\n"
               f"{{t}} = {{a}} + {WEIGHTS} + len(STEPS_LOG)", HOOKED, *CHANGES,
               "STEPS_LOG.clear()"),
    statements("averaged weights", "with torch.no_grad():\n    AVERAGED_MODEL.weight.add_(1.0)\n"
               "AVERAGE.update_parameters(AVERAGED_MODEL)\n"
               "{t} = {a} + AVERAGE.module.weight.detach().sum()", AVERAGED,
               "AVERAGED_MODEL.weight.data.fill_(9.0)"),
    statements("backward and step", "(TRAINED * TRAINED).sum().backward()\nTRAINER.step()\n"
               f"TRAINER.zero_grad()\n{{t}} = {{a}} + {WEIGHTS}", SGD, *CHANGES),
)  # fmt: skip
