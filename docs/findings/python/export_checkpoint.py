import torch
from torch.utils.checkpoint import checkpoint


class Model(torch.nn.Module):
    def forward(self, x):
        return checkpoint(torch.sin, x, use_reentrant=False)


torch.export.export(Model(), (torch.ones(3),), strict=True)
