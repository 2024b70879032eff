"""Which chunk shapes suit what is read: models of the cost, the best shapes, and advice. Pure and synchronous."""

__all__: list[str] = []
