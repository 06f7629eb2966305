import torch


class Settings:
    def __getattr__(self, name):
        return 2


settings = Settings()
compiled = torch.compile(lambda x: x * settings.scale, backend="eager")
compiled(torch.ones(1))
settings.scale = 9
torch.testing.assert_close(compiled(torch.ones(1)), torch.full((1,), 9.0))
