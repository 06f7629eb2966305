import io

import torch


class Distance(torch.nn.Module):
    def forward(self, x):
        return x + abs(4 - x.shape[0])


shapes = {"x": {0: torch.export.Dim.DYNAMIC}}
program = torch.export.export(Distance(), (torch.ones(3),), dynamic_shapes=shapes)
torch.testing.assert_close(program.module()(torch.ones(6)), torch.full((6,), 3.0))
torch.export.save(program, io.BytesIO())
