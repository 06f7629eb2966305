import torch


class Settings:
    pass


settings = Settings()
settings.first = 1
compiled = torch.compile(lambda x: x * len(vars(settings)), backend="eager")
compiled(torch.ones(1))
settings.second = 2
torch.testing.assert_close(compiled(torch.ones(1)), torch.full((1,), 2.0))
