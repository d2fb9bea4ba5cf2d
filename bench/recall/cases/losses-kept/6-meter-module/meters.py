class Meter:
    """Weighted running mean."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.sum = 0.0
        self.count = 0

    def update(self, value, n=1):
        self.sum = self.sum + value * n
        self.count += n

    @property
    def mean(self):
        return self.sum / max(self.count, 1)


class MeterGroup:
    def __init__(self, *names):
        self.meters = {name: Meter() for name in names}

    def update(self, name, value, n=1):
        self.meters[name].update(value, n)

    def reset(self):
        for m in self.meters.values():
            m.reset()

    def line(self):
        return "  ".join(f"{k} {float(m.mean):.4f}" for k, m in self.meters.items())
