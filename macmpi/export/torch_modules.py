"""Modules of an exported torch file that torch does not have."""

CLASSES = {
    "Scale": '''
class Scale(nn.Module):
    """x -> (x - shift) / scale, by column."""

    def __init__(self, columns):
        super().__init__()
        self.register_buffer("shift", torch.zeros(columns))
        self.register_buffer("scale", torch.ones(columns))

    def forward(self, X):
        return (X - self.shift) / self.scale
''',
    "Unscale": '''
class Unscale(Scale):
    """The inverse of Scale."""

    def forward(self, X):
        return X * self.scale + self.shift
''',
    "Carrying": '''
class Carrying(nn.Module):
    """A module of the first columns; the others as they are."""

    def __init__(self, module, first):
        super().__init__()
        self.module, self.first = module, first

    def forward(self, X):
        return torch.cat([self.module(X[:, : self.first]), X[:, self.first :]], 1)
''',
    "Copy": '''
class Copy(nn.Module):
    """A copy of the first columns behind all."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, X):
        return torch.cat([X, X[:, : self.size]], 1)
''',
    "Add": '''
class Add(nn.Module):
    """The sum of the first columns and the others, as many."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, X):
        return X[:, : self.size] + X[:, self.size :]
''',
    "Compress": '''
class Compress(nn.Module):
    """x -> asinh((x - centre) / width) in the columns with long tails."""

    def __init__(self, columns):
        super().__init__()
        for name in ("centre", "width", "long"):
            self.register_buffer(name, torch.ones(columns))

    def forward(self, X):
        return torch.where(self.long > 0, torch.asinh((X - self.centre) / self.width), X)
''',
    "Stretch": '''
class Stretch(Compress):
    """The inverse of Compress."""

    def forward(self, X):
        return torch.where(self.long > 0, torch.sinh(X * self.long) * self.width + self.centre, X)
''',
    "Again": '''
class Again(nn.Module):
    """x -> asinh(x) in the columns with tails that are long still."""

    def __init__(self, columns):
        super().__init__()
        self.register_buffer("again", torch.ones(columns))

    def forward(self, X):
        return torch.where(self.again > 0, torch.asinh(X), X)
''',
    "StretchAgain": '''
class StretchAgain(Again):
    """The inverse of Again."""

    def forward(self, X):
        return torch.where(self.again > 0, torch.sinh(X * self.again), X)
''',
    "Patches": '''
class Patches(nn.Module):
    """The numbers of each patch of images, 0 around them."""

    def __init__(self, *shape):
        super().__init__()
        self.register_buffer("index", torch.zeros(shape))

    def patches(self, A):
        return nn.functional.pad(A, (1, 0))[:, self.index.long()]
''',
    "Convolution": '''
class Convolution(Patches):
    """One linear map of every patch, channels last."""

    def __init__(self, units, *shape):
        super().__init__(*shape)
        self.weight, self.bias = nn.Parameter(torch.empty(units, shape[-1])), nn.Parameter(torch.empty(units))

    def forward(self, A):
        return nn.functional.linear(self.patches(A), self.weight, self.bias).flatten(1)
''',
    "Pooling": '''
class Pooling(Patches):
    """The largest number of each patch and channel, or their mean, or their sum."""

    def __init__(self, of, *shape):
        super().__init__(*shape)
        self.of = of

    def forward(self, A):
        pixels = self.patches(A)
        return (pixels.amax(2) if self.of == "max" else getattr(pixels, self.of)(2)).flatten(1)
''',
    "Centres": '''
class Centres(nn.Module):
    """Points in the space of the inputs, taken from their middle."""

    def __init__(self, inputs, count):
        super().__init__()
        self.centres = nn.Parameter(torch.empty(count, inputs))
        self.register_buffer("middle", torch.zeros(inputs))

    def distances(self, A):
        A, C = A - self.middle, self.centres
        return ((A * A).sum(1, keepdim=True) + (C * C).sum(1) - 2.0 * A @ C.T).clamp(min=0.0)
''',
    "GaussianBasis": '''
class GaussianBasis(Centres):
    """b_h = exp(-||a - c_h||^2 / width^2)."""

    def __init__(self, inputs, units, width):
        super().__init__(inputs, units)
        self.width = width

    def forward(self, A):
        return torch.exp(self.distances(A) / -self.width**2)
''',
    "Codebook": '''
class Codebook(Centres):
    """The codeword nearest to a; no derivative by a."""

    def forward(self, A):
        return (self.centres + self.middle)[self.distances(A).argmin(1)]
''',
    "Neighbours": '''
class Neighbours(Centres):
    """The mean over the examples that are nearest to a; no derivative by a."""

    def __init__(self, inputs, examples, outputs, count):
        super().__init__(inputs, examples)
        self.values, self.count = nn.Parameter(torch.empty(examples, outputs)), count

    def forward(self, A):
        return self.values[self.distances(A).topk(self.count, largest=False).indices].mean(1)
''',
    "Trees": '''
class Trees(nn.Module):
    """The sum of the leaves in which a ends: node i goes on to 2 i + 1, above its threshold to 2 i + 2."""

    def __init__(self, trees, leaves, outputs):
        super().__init__()
        self.leaves = nn.Parameter(torch.empty(trees, leaves, outputs))
        for name in ("columns", "thresholds"):
            self.register_buffer(name, torch.zeros(trees, leaves - 1))

    def forward(self, A):
        trees, leaves, outputs = self.leaves.shape
        first = torch.arange(trees, device=A.device)
        at = torch.zeros(len(A), trees, dtype=torch.long, device=A.device)
        for _ in range(leaves.bit_length() - 1):
            node = at + first * (leaves - 1)
            above = A.gather(1, self.columns.long().flatten()[node]) > self.thresholds.flatten()[node]
            at = 2 * at + 1 + above
        return self.leaves.flatten(0, 1)[at - (leaves - 1) + first * leaves].sum(1)
''',
    "Recurrent": '''
class Recurrent(nn.Module):
    """The last state, before its activation: each reads the state before it, at first 0, and its part of X."""

    def __init__(self, inputs, units, steps, activation):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(units, units + inputs)), nn.Parameter(torch.empty(units))
        self.steps, self.activation = steps, activation

    def forward(self, X):
        H = X.new_zeros(len(X), len(self.bias))
        for part in X.chunk(self.steps, 1):
            A = nn.functional.linear(torch.cat([H, part], 1), self.weight, self.bias)
            H = self.activation(A)
        return A
''',
    "Exp": '''
class Exp(nn.Module):
    """exp(a), the mean of counts."""

    def forward(self, A):
        return torch.exp(A)
''',
    "Bits": '''
class Bits(nn.Module):
    """1 where a > 0, else 0; no derivative."""

    def forward(self, A):
        return (A > 0).to(A.dtype)
''',
}
"""Modules that torch does not have, of which a file has those that it uses."""

BASES = {
    "Unscale": "Scale",
    "Stretch": "Compress",
    "StretchAgain": "Again",
    "GaussianBasis": "Centres",
    "Codebook": "Centres",
    "Neighbours": "Centres",
    "Convolution": "Patches",
    "Pooling": "Patches",
}
"""Some of them are subclasses of these."""
