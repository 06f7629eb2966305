import io

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.tensor([2j, 3j]).conj())

    def forward(self, x):
        return x * self.factor


x, file = torch.ones(2), io.BytesIO()
torch.export.save(torch.export.export(Model(), (x,)), file)
torch.testing.assert_close(torch.export.load(file).module()(x), Model()(x))
