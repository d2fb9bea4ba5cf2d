class Average:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def add(self, value):
        self.total += float(value)
        self.n += 1

    def pop(self):
        mean = self.total / max(self.n, 1)
        self.total, self.n = 0.0, 0
        return mean
