import torch
from torch.nn.attention.flex_attention import flex_attention

bias = torch.zeros(16, requires_grad=True)
q, k, v = torch.ones(3, 1, 1, 16, 8).unbind()


def attention(q, k, v):
    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + bias[j])


torch.testing.assert_close(torch.compile(attention)(q, k, v), v)
