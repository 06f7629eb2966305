import io

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            y = x @ x
        return y


file = io.BytesIO()
torch.export.save(torch.export.export(Model(), (torch.ones(2, 2),)), file)
torch.export.load(file)
