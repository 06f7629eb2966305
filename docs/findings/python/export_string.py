import io

import torch


class Named(torch.nn.Module):
    def forward(self, x):
        return x, "name"


saved = io.BytesIO()
torch.export.save(torch.export.export(Named(), (torch.ones(1),)), saved)
saved.seek(0)
assert torch.export.load(saved).module()(torch.ones(1))[1] == "name"
